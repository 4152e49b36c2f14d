"""SmartRedis' own client beside ours: it asks for RedisAI, and so runs against ``stream.Gateway`` alone.

It needs a Python of its own (3.9 to 3.11, with ``smartredis==0.6.1`` and NumPy below 2), which
SUPERBATCH_SMARTREDIS_PYTHON names. What is measured holds the gateway's share too: the part of the client
cannot be told apart from outside.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

PYTHON = os.environ.get("SUPERBATCH_SMARTREDIS_PYTHON")

_CLIENT = """
import sys
import numpy as np
from smartredis import Client
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = Client(False, address=address)
array = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8)
client.put_tensor("data", array)
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(count):
        got = client.get_tensor("data")
    print("same" if np.array_equal(got, array) else "other", flush=True)
"""


class Client:
    """A process with a SmartRedis client that fetches one tensor so many times when it is told to.

    Parameters
    ----------
    process : subprocess.Popen
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def expect(self, word: str) -> None:
        """Wait for what it says."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != word:
            raise RuntimeError(f"the SmartRedis client said {said!r} rather than {word!r}")

    def fetch(self) -> None:
        """Fetch, and wait until it is done and found to be what was put."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.expect("same")


@contextlib.contextmanager
def running(address: str, count: int, size: int) -> Iterator[Client]:
    """A client, behind a gateway, that fetches ``count`` tensors of ``size`` bytes at a time."""
    from superbatch.stream import Gateway

    if PYTHON is None:
        raise RuntimeError("SUPERBATCH_SMARTREDIS_PYTHON names no Python with smartredis")
    with Gateway(address) as gateway:
        environment = {
            "PATH": os.environ["PATH"],
            "SSDB": gateway.address,
            "SR_DB_TYPE": "Standalone",
            "SR_LOG_LEVEL": "QUIET",
            "SR_LOG_FILE": os.devnull,
        }
        process = subprocess.Popen(
            [PYTHON, "-c", _CLIENT, gateway.address, str(count), str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            client = Client(process)
            client.expect("ready")
            yield client
        finally:
            if process.stdin is not None:
                process.stdin.close()  # its loop ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait(10)
