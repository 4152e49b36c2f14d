"""Which run and which step of a forecast archive an anchor needs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from superbatch.archive import times
from superbatch.archive.lookup import Points
from superbatch.errors import ArgumentError, shown
from superbatch.window import Forecast

Ints = npt.NDArray[np.int64]
_HOUR = 3_600_000_000_000
# What numbers of steps may count, as CF spells it; without units they are hours.
_UNITS = {
    **dict.fromkeys(("hours", "hour", "hrs", "hr", "h"), _HOUR),
    **dict.fromkeys(("minutes", "minute", "mins", "min"), _HOUR // 60),
    **dict.fromkeys(("seconds", "second", "secs", "sec", "s"), _HOUR // 3600),
    **dict.fromkeys(("days", "day", "d"), 24 * _HOUR),
}


@dataclass
class Chosen:
    """Runs and steps for every anchor time.

    Attributes
    ----------
    points : Points
    valid : dict of str to bool array, shape (times,)
        By reason: which anchor times have what they need.
    valid_times : int64 array, shape (times, points)
        In nanoseconds, as the anchors are counted.
    runs : int64 array, shape (runs,)
        Likewise.
    """

    points: Points
    valid: dict[str, npt.NDArray[np.bool_]]
    valid_times: Ints
    runs: Ints


def choose(
    window: Forecast,
    name: str,
    dims: tuple[str, ...],
    coords: dict[str, npt.NDArray[Any]],
    anchors: npt.NDArray[Any],
    column: int,
) -> Chosen:
    """Find the run and the steps for every anchor time.

    Parameters
    ----------
    window : Forecast
    name : str
        The modality, for errors.
    dims, coords
        Of the archive.
    anchors : array of dates
        The time axis of the reference.
    column : int
        The column of the anchor that holds the time.

    Raises
    ------
    ArgumentError
        Coordinates that are missing, run times out of order, offsets that hold no step.
    """
    where = f"Forecast of {name!r}"
    for dim in (window.init_time, window.step):
        if dim not in coords:
            raise ArgumentError(
                f"{where} needs a 1-d coordinate {dim!r}: its array has {', '.join(sorted(coords)) or 'none'}; "
                f"write init_time= and step= as they are called there"
            )
    units = window.data.coords[window.step].attrs.get("units", "hours")
    init = coords[window.init_time]
    step_lags = _lags(where, window.step, coords[window.step], units)
    if not times.is_time(init):
        raise ArgumentError(
            f"{where}: {window.init_time!r} holds no dates but {init.dtype}: name the coordinate of the runs' times"
        )
    if len(init) > 1:
        times.check_order(window.init_time, init)
    now, runs = times.nanoseconds(anchors), times.nanoseconds(init, like=anchors)
    if len(runs) > 1 and runs[0] > runs[-1]:
        raise ArgumentError(
            f"{where}: the runs of {window.init_time!r} fall: sort them, such as with .sortby({window.init_time!r})"
        )
    step = int(np.diff(step_lags).min()) if len(step_lags) > 1 else _HOUR
    if isinstance(window.time, slice):
        low, high = times.steps(window.time, pd.Timedelta(step, unit="ns"), where)
    else:
        low, high = 0, int(window.time)
    # Looked at before anything is made that is as long.
    reach = (int(runs[-1] - runs[0]) + int(step_lags[-1] - step_lags[0])) // step + 1
    if high - low > reach:
        raise ArgumentError(
            f"{where}: time={shown(window.time)} takes {high - low} steps where the runs reach over {reach}: shorten it"
        )
    offsets = np.arange(low, high, dtype=np.int64) * step
    # The anchor on the archive's own clock: valid times are a run's time plus whole steps.
    phase = int(runs[0]) % step
    valid_times = ((now - phase) // step * step + phase)[:, None] + offsets

    usual = int(times.offset(window.delay, f"{where}, delay").value)
    waits = [usual, *(usual + int(times.offset(w, f"{where}, late").value) for w in window.late)]
    if min(waits) < usual:
        raise ArgumentError(
            f"{where}: late={shown(window.late)} has a run come before its delay: write offsets above 0"
        )
    reasons = {"no run old enough": np.ones(len(now), bool), "run too old": np.ones(len(now), bool)}
    reasons["no such step"] = np.ones(len(now), bool)
    run_tables, step_tables = [], []
    before = window.accumulated is not False
    if before:
        reasons["no step before"] = np.ones(len(now), bool)
        follows = np.diff(step_lags, prepend=0) <= step
    for wait in waits:
        run, lag = _freshest(window, runs, now, valid_times, wait)
        exists = (run >= 0).all(axis=1)
        reasons["no run old enough"] &= exists
        if window.max_age is not None:
            age = int(times.offset(window.max_age, f"{where}, max_age").value)
            latest = np.searchsorted(runs, now - wait, side="right") - 1
            reasons["run too old"] &= now - runs[np.maximum(latest, 0)] <= age
        index = np.searchsorted(step_lags, lag)
        index = np.minimum(index, len(step_lags) - 1)
        found = step_lags[index] == lag
        reasons["no such step"] &= found.all(axis=1) | ~exists
        if before:
            # A difference over more than one step would count for too much.
            reasons["no step before"] &= (follows[index] | ~found).all(axis=1)
        run_tables.append(np.maximum(run, 0).astype(np.int32))
        step_tables.append(np.where(found, index, 0).astype(np.int32))
    points = Points(
        column,
        dims.index(window.init_time),
        dims.index(window.step),
        np.stack(run_tables),
        np.stack(step_tables),
        np.cumsum(list(window.late.values()), dtype=np.float64),
        before,
        zlib.crc32(name.encode()),
    )
    return Chosen(points, reasons, valid_times, runs)


def _freshest(
    window: Forecast, runs: Ints, now: Ints, valid_times: Ints, wait: int
) -> tuple[Ints, Ints]:
    """The run for each valid time (-1: none), and how long after it the valid time is."""
    known = np.searchsorted(runs, now - wait, side="right") - 1
    run = np.broadcast_to(known[:, None], valid_times.shape).copy()
    if window.past == "freshest":
        past = valid_times <= now[:, None]
        fresh = np.searchsorted(runs, valid_times, side="right") - 1
        run = np.where(past, np.minimum(run, fresh), run)
    return run, valid_times - runs[np.maximum(run, 0)]


def _lags(where: str, name: str, coordinate: npt.NDArray[Any], units: str) -> Ints:
    """Steps in nanoseconds: of timedeltas, or of numbers."""
    if coordinate.dtype.kind == "m":
        lags = coordinate.astype("timedelta64[ns]").astype(np.int64)
    elif coordinate.dtype.kind in "iuf":
        if units not in _UNITS:
            raise ArgumentError(
                f"{where}: the steps of {name!r} are in {units!r}: make them timedeltas or hours"
            )
        lags = np.rint(coordinate.astype(np.float64) * _UNITS[units]).astype(np.int64)
    else:
        raise ArgumentError(
            f"{where}: {name!r} holds {coordinate.dtype}, not steps: it must hold timedeltas or numbers of hours"
        )
    if len(lags) > 1 and (np.diff(lags) <= 0).any():
        raise ArgumentError(
            f"{where}: the steps of {name!r} do not rise: sort them, such as with .sortby({name!r})"
        )
    return lags
