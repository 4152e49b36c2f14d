"""Machines of their own, as far as the network goes: Linux network namespaces on a bridge."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

# One for each process: two runs at once are not to meet. The range is that of benchmarks (RFC 2544).
NETWORK = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}"


class NotAllowed(Exception):
    """Namespaces cannot be made here."""


class Machine:
    """A namespace with one address.

    Attributes
    ----------
    address : str
    """

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._link = f"sbv{os.getpid() % 10**6}-{number}"  # at most 15 characters

    def start(self, *command: str, **options: object) -> subprocess.Popen[bytes]:
        """Run a command on it."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], **options)  # type: ignore[call-overload]

    def sent(self) -> int:
        """Bytes that have left it."""
        # what it sends is received at this end of the cable
        return int(Path(f"/sys/class/net/{self._link}/statistics/rx_bytes").read_text())

    def received(self) -> int:
        """Bytes that have reached it."""
        return int(Path(f"/sys/class/net/{self._link}/statistics/tx_bytes").read_text())


@contextlib.contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """Make so many, which see each other and this machine; they are gone afterwards.

    Raises
    ------
    NotAllowed
    """
    bridge = f"sbb{os.getpid() % 10**6}"
    made = [Machine(f"superbatch-{os.getpid()}-{n}", n) for n in range(2, 2 + count)]
    with contextlib.ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{NETWORK}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for machine in made:
            _ip("netns", "add", machine.name)
            stack.callback(_ip, "netns", "del", machine.name)  # its end of the cable goes with it
            inner = f"{machine._link}i"[-15:]
            _ip("link", "add", machine._link, "type", "veth", "peer", "name", inner)
            _ip("link", "set", inner, "netns", machine.name, "name", "eth0")
            _ip("link", "set", machine._link, "master", bridge, "up")
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            _ip("-n", machine.name, "link", "set", "eth0", "up")
            _ip("-n", machine.name, "link", "set", "lo", "up")
        yield made


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=10)
    except FileNotFoundError as error:
        raise NotAllowed("there is no ip command") from error
    if done.returncode:
        raise NotAllowed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
