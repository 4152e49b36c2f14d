"""Numbers of bytes: how people write them, and how much there is."""

from __future__ import annotations

import re
from fractions import Fraction

import psutil

from superbatch.errors import ArgumentError, shown

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}B"] = 1000**_power
    _UNITS[f"{_letter}IB"] = 1024**_power


def parse_bytes(value: str | int) -> int:
    """A number of bytes from ``"8GB"``, ``"512 MiB"`` or an int.

    Examples
    --------
    >>> parse_bytes("1.5 GB"), parse_bytes("2KiB"), parse_bytes(7)
    (1500000000, 2048, 7)
    """
    wrong = ArgumentError(f'{shown(value)} is not a number of bytes: write one such as "8GB"')
    if isinstance(value, bool):
        raise wrong
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(value))
    if match is None or match[2].upper() not in _UNITS:
        raise wrong
    number = int(Fraction(match[1]) * _UNITS[match[2].upper()])
    if not 1 <= number < 2**63:
        raise wrong
    return number


def available() -> int:
    """Bytes that new processes could take without swapping, in this container or machine."""
    free = psutil.virtual_memory().available
    try:
        # version 2 of control groups; "max" where there is no limit
        with (
            open("/sys/fs/cgroup/memory.max") as limit,
            open("/sys/fs/cgroup/memory.current") as now,
        ):
            return min(free, max(0, int(limit.read()) - int(now.read())))
    except (OSError, ValueError):
        return free


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory, in this container or machine."""
    for path in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        try:
            with open(path) as lines:
                for line in lines:
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue
    return 0
