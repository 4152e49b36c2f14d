"""Checks of arguments that several constructors share."""

from __future__ import annotations

import operator
import os

from superbatch.errors import ArgumentError, shown

# Three years, in seconds: the clocks of sockets and locks go no further than a century or two.
_LONGEST = 1e8


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or is below ``least``.

    Raises
    ------
    ArgumentError
    """
    try:
        right = not isinstance(value, bool) and operator.index(value) >= least  # type: ignore[arg-type]
    except TypeError:
        right = False
    if not right:
        raise ArgumentError(
            f"{name}={shown(value)} is not a number of things: write an int, {least} or more"
        )


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no time above 0.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LONGEST:
        raise ArgumentError(
            f"{name}={shown(value)} is not a time: write a number of seconds above 0, {_LONGEST:,.0f} at most"
        )
