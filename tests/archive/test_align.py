"""Which positions a window covers, against a search through the coordinate."""

from __future__ import annotations

import datetime
from typing import Any

import cftime
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.align import align
from superbatch.archive.crop import Cut
from superbatch.archive.grid import Grid
from superbatch.archive.times import is_time, step_of
from superbatch.errors import ArgumentError
from superbatch.window import Window

MINUTE = np.timedelta64(60_000_000_000, "ns")


def series(times: Any, **more: int) -> xr.DataArray:
    shape = (len(times), *more.values())
    return xr.DataArray(np.zeros(shape, "f4"), dims=("time", *more), coords={"time": times})


def dates(count: int, minutes: int = 5) -> np.ndarray:
    return np.datetime64("2020-02-28T22:00", "ns") + np.arange(count) * minutes * MINUTE


def extent(grid: Grid, dim: str) -> tuple[int, int]:
    (found,) = [d for d in grid.dimensions if d.name == dim]
    return found.low, found.high


@given(st.integers(1, 30), st.integers(-60, 60), st.integers(0, 90), st.booleans(), st.booleans())
def test_offsets_cover_what_lies_between_both_ends(
    step, begin, length, backwards, calendar
) -> None:
    end = begin + length
    count = 2 + max(abs(begin), abs(end)) // step
    count = 2 * count + 1  # room on both sides of the anchor in the middle
    if calendar:
        first = cftime.Datetime360Day(2000, 2, 28)
        times = np.array([first + datetime.timedelta(minutes=step * i) for i in range(count)])
        minutes = np.array([(t - first).total_seconds() / 60 for t in times])
    else:
        times = dates(count, step)
        minutes = np.arange(count) * step
    if backwards:
        times, minutes = times[::-1], minutes[::-1]
    middle = count // 2
    offsets = minutes - minutes[middle]
    covered = [i - middle for i, o in enumerate(offsets) if begin <= o <= end]
    window = Window(series(times), time=slice(f"{begin}min", f"{end}min"))
    if not covered:
        with pytest.raises(ArgumentError, match="holds no position"):
            align({"a": window})
        return
    grid = align({"a": window})
    (cut,) = grid.cuts
    (dimension,) = grid.dimensions
    first = cut.offset[0]
    assert list(range(first, first + cut.size[0])) == covered
    # The anchor itself is a position of the axis, so that there is a time to call it by.
    assert dimension.low <= 0 < dimension.high


@given(st.integers(1, 12), st.booleans())
def test_a_number_of_positions(count, timed) -> None:
    data = xr.DataArray(np.zeros(12), dims=("time",))
    if timed:
        data = data.assign_coords(time=dates(12))
    low, high = extent(align({"a": Window(data, time=count)}), "time")
    assert high - low == count
    if timed:  # from the anchor on
        assert low == 0
    else:  # around it: as many on both sides, or one more before
        before, after = -low, high - 1
        assert before - after in (0, 1)


def columns(cut: Cut) -> list[int | None]:
    return [None if lookup is None else lookup.columns[0] for lookup in cut.lookups]


def test_several_windows_share_their_dimensions() -> None:
    sat, other = series(dates(100), y=8, x=9), series(dates(100), x=9)
    grid = align(
        {
            "past": Window(sat, time=slice("-1h", "0min"), y=3, x=4),
            "future": Window(sat, time=slice("5min", "2h")),
            "line": Window(other, x=7),
        }
    )
    assert [d.name for d in grid.dimensions] == ["time", "y", "x"]
    assert extent(grid, "time") == (-12, 25)
    assert extent(grid, "y") == (-1, 2)
    assert extent(grid, "x") == (-3, 4)
    past, future, line = grid.cuts
    assert (past.offset, past.size, columns(past)) == ((-12, -1, -2), (13, 3, 4), [0, 1, 2])
    assert (future.offset, future.size) == ((1, 0, 0), (24, 8, 9))
    assert columns(future) == [0, None, None]
    assert (line.offset, line.size, columns(line)) == ((0, -3), (100, 7), [None, 2])


def test_one_array_in_two_windows_is_read_once(tmp_path) -> None:
    data = series(dates(20), x=4)
    data.to_dataset(name="a").to_zarr(tmp_path / "a.zarr")
    opened = xr.open_zarr(tmp_path / "a.zarr")["a"]
    grid = align({"now": Window(opened, time=2), "then": Window(opened, time=3)})
    assert len(grid.arrays) == 1
    assert [cut.array for cut in grid.cuts] == [0, 0]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("-30min", "1h"),
        (pd.Timedelta("-30min"), pd.Timedelta("1h")),
        (datetime.timedelta(minutes=-30), datetime.timedelta(hours=1)),
        (np.timedelta64(-30, "m"), np.timedelta64(1, "h")),
    ],
)
def test_offsets_in_any_type(begin, end) -> None:
    assert extent(align({"a": Window(series(dates(50)), time=slice(begin, end))}), "time") == (
        -6,
        13,
    )


def test_the_step_is_the_usual_one() -> None:
    assert step_of(np.delete(dates(30), [4, 5, 20])) == pd.Timedelta("5min")
    months = np.array([cftime.Datetime360Day(2000 + m // 12, m % 12 + 1, 1) for m in range(30)])
    assert step_of(months) == pd.Timedelta("30D")


def test_what_counts_as_time() -> None:
    assert is_time(dates(3))
    assert is_time(dates(3) - dates(1))
    assert is_time(np.array([cftime.DatetimeNoLeap(2000, 1, 1)]))
    assert not is_time(None)
    assert not is_time(np.arange(3))
    assert not is_time(np.array(["a", "b"], dtype=object))
    assert not is_time(dates(0))


plain = xr.DataArray(np.zeros((10, 4)), dims=("time", "x"))
timed = series(dates(10), x=4)


# situation: the array has exactly one window, or none
@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ({"a": Window(plain, z=3)}, "'z', which its array does not have: write one of time, x"),
        ({"a": Window(plain, time=11)}, "is 11 long in 'time', where the array has 10"),
        ({"a": Window(plain, time=2**70)}, "where the array has 10: write time=10 or less"),
        ({"a": Window(plain)}, "no dimension is windowed"),
        ({"a": Window(plain, time=slice("0h", "1h"))}, "'time' has no time coordinate"),
        (
            {"a": Window(timed, time=slice("1min", "4min"))},
            "holds no position .* step of 0 days 00:05",
        ),
        ({"a": Window(timed, time=slice("1h", "-1h"))}, "holds no position"),
        ({"a": Window(timed, time=slice("soon", "1h"))}, "'soon' is not a time offset"),
        ({"a": Window(timed, time=slice("NaT", "1h"))}, "'NaT' is not a time offset"),
        ({"a": Window(timed, time=slice(0, 3))}, "0 is not a time offset"),
        ({"a": Window(timed, time=slice("0h", "999999h"))}, "is .* long in 'time'"),
        ({"a": Window(series(dates(1)), time=slice("0h", "1h"))}, "one stamp"),
        (
            {"a": Window(series(np.repeat(dates(1), 9)), time=slice("0h", "1h"))},
            "9 stamps repeated",
        ),
        ({"a": Window(timed, time=2), "b": Window(plain[:9], time=2)}, "'b' has 9 positions"),
        (
            {
                "a": Window(timed, time=2),
                "b": Window(plain.assign_coords(time=np.arange(10)), time=2),
            },
            "no numeric coordinates",
        ),
    ],
)
def test_what_cannot_be_brought_together(windows, message) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        align(windows)
    assert "\n" not in str(caught.value)


def test_the_longest_window_there_is() -> None:
    assert extent(align({"a": Window(plain, time=10)}), "time") == (-5, 5)
    assert extent(align({"a": Window(timed, time=10)}), "time") == (0, 10)
