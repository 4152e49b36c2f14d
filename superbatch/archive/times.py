"""Time axes: their steps, their gaps, and where the stamps of one lie on another."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from superbatch.errors import ArgumentError, shown

Ints = npt.NDArray[np.int64]

# A step longer than this many usual steps is a gap. Months differ by less, a missing stamp by more.
GAP = 1.5


def is_time(coordinate: npt.NDArray[Any] | None) -> bool:
    """Whether a coordinate holds dates or durations."""
    if coordinate is None or not len(coordinate):
        return False
    if coordinate.dtype.kind in "mM":
        return True
    return coordinate.dtype == object and hasattr(coordinate[0], "calendar")


def nanoseconds(coordinate: npt.NDArray[Any], like: npt.NDArray[Any] | None = None) -> Ints:
    """Dates as int64 nanoseconds: since 1970, or since the first date of ``like`` in its calendar.

    Raises
    ------
    ArgumentError
        Two calendars.
    """
    if coordinate.dtype.kind == "M":
        if like is not None and like.dtype == object:
            raise ArgumentError(
                f"a calendar of {like[0].calendar} and one of real dates cannot be brought together: "
                f"convert one, such as with .convert_calendar"
            )
        return coordinate.astype("datetime64[ns]").astype(np.int64)
    if coordinate.dtype.kind == "m":
        return coordinate.astype("timedelta64[ns]").astype(np.int64)
    zero = (coordinate if like is None else like)[0]
    if getattr(zero, "calendar", None) != coordinate[0].calendar:
        raise ArgumentError(
            f"a calendar of {coordinate[0].calendar} and one of "
            f"{getattr(zero, 'calendar', 'real dates')} cannot be brought together: convert one"
        )
    microsecond = datetime.timedelta(microseconds=1)
    return np.array([(c - zero) // microsecond for c in coordinate], dtype=np.int64) * 1000


def dates(stamps: Ints, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Dates out of what :func:`nanoseconds` makes of them."""
    if like.dtype.kind in "mM":
        return stamps.astype(f"{like.dtype.kind}8[ns]")
    microseconds = [datetime.timedelta(microseconds=int(s) // 1000) for s in stamps]
    return np.array([like[0] + m for m in microseconds], dtype=object)


def epoch(coordinate: npt.NDArray[Any]) -> int:
    """What to add to :func:`nanoseconds` of dates for those since 1970 in their own calendar."""
    if coordinate.dtype.kind in "mM":
        return 0
    first = coordinate[0]
    zero = type(first)(1970, 1, 1, calendar=first.calendar)
    return int((first - zero) // datetime.timedelta(microseconds=1)) * 1000


def step_of(coordinate: npt.NDArray[Any]) -> pd.Timedelta:
    """The step of a time axis, below 0 where it falls: the median of the differences between neighbours."""
    return pd.Timedelta(int(np.median(np.diff(nanoseconds(coordinate)))), unit="ns")


def offset(value: object, where: str) -> pd.Timedelta:
    """A time offset from what the user wrote."""
    try:
        if isinstance(value, (str, datetime.timedelta, np.timedelta64)):
            found = pd.Timedelta(value)
            if not pd.isna(found):
                return found
    except ValueError:
        pass
    raise ArgumentError(
        f'{where}: {shown(value)} is not a time offset: write one such as "30min" or "-2h"'
    )


def steps(extent: slice, step: pd.Timedelta, where: str) -> tuple[int, int]:
    """First step and one past the last of a slice of offsets, both ends of which are inside."""
    begin, end = offset(extent.start, where), offset(extent.stop, where)
    if step < pd.Timedelta(0):  # a later time comes first
        begin, end = end, begin
    low, high = -((-begin) // step), end // step + 1
    if high <= low:
        raise ArgumentError(
            f"{where}: {shown(extent)} holds no position of an axis with a step of {step}: write a longer slice"
        )
    return int(low), int(high)


def check_order(name: str, coordinate: npt.NDArray[Any]) -> None:
    """Refuse stamps that repeat or go back, with the first few of them."""
    steps = np.diff(nanoseconds(coordinate))
    if (steps < 0).all():
        steps = -steps
    wrong = np.flatnonzero(steps <= 0)
    if len(wrong):
        stamps = ", ".join(str(coordinate[i + 1]) for i in wrong[:3])
        kinds = [
            k for k, n in (("repeat", (steps == 0).sum()), ("go back", (steps < 0).sum())) if n
        ]
        raise ArgumentError(
            f"{len(wrong)} stamps of {name!r} {' or '.join(kinds)}, the first at position "
            f"{int(wrong[0]) + 1} ({stamps}): sort and drop duplicates first, such as with "
            f".sortby({name!r}).drop_duplicates({name!r})"
        )


def gap_ends(name: str, coordinate: npt.NDArray[Any] | None) -> Ints | None:
    """Positions whose predecessor is more than one step away; None where there is no gap."""
    if coordinate is None or not is_time(coordinate) or len(coordinate) < 2:
        return None
    check_order(name, coordinate)
    differences = np.abs(np.diff(nanoseconds(coordinate)))
    ends = np.flatnonzero(differences > GAP * np.median(differences)) + 1
    return ends if len(ends) else None


def latest(own: Ints, anchors: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """For each anchor, the position of the latest own stamp at or before it.

    Returns
    -------
    position : int64 array
        0 where there is none.
    fresh : bool array
        Whether the stamp is there, and the next one was not due yet. A step that is longer than
        usual, such as a month of 31 days, is no gap.
    """
    position = np.searchsorted(own, anchors, side="right") - 1
    clipped = np.maximum(position, 0)
    if len(own) == 1:
        return clipped.astype(np.int64), anchors == own[0]
    differences = np.diff(own)
    usual = np.median(differences)
    lasts = np.append(differences, np.int64(usual))
    lasts = np.where(lasts > GAP * usual, np.int64(usual), lasts)
    fresh = (position >= 0) & (anchors - own[clipped] < lasts[clipped])
    return clipped.astype(np.int64), fresh


def unbroken(
    position: Ints, low: int, high: int, length: int, gaps: Ints | None
) -> npt.NDArray[np.bool_]:
    """Whether positions ``low`` to ``high`` (excluded) around each one exist and no gap is among them."""
    first, last = position + low, position + high - 1
    inside = (first >= 0) & (last < length)
    if gaps is None:
        return inside
    ended = np.searchsorted(gaps, np.stack([first, last]), side="right")
    return np.asarray(inside & (ended[0] == ended[1]))
