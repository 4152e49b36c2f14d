"""Time axes: the latest stamp, gaps, rounding of offsets, calendars; each against a loop."""

from __future__ import annotations

import datetime

import cftime
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive import times
from superbatch.errors import ArgumentError


def months(count: int) -> np.ndarray:
    return pd.date_range("2001-01-01", periods=count, freq="MS").values.astype("datetime64[ns]")


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=30, unique=True),
    st.lists(st.integers(-10, 80), min_size=1, max_size=30),
)
def test_the_latest_stamp_is_fresh_until_the_next_is_due(own, anchors) -> None:
    own = np.sort(np.array(own, dtype=np.int64))
    position, fresh = times.latest(own, np.array(anchors, dtype=np.int64))
    usual = np.median(np.diff(own))
    for anchor, at, is_fresh in zip(anchors, position, fresh, strict=True):
        before = [k for k, stamp in enumerate(own) if stamp <= anchor]
        assert at == (before[-1] if before else 0)
        if not before:
            assert not is_fresh
            continue
        last = before[-1] == len(own) - 1
        following = usual if last else own[before[-1] + 1] - own[before[-1]]
        lasts = following if following <= times.GAP * usual else usual
        assert is_fresh == (anchor - own[before[-1]] < int(lasts))


def test_the_last_day_of_a_long_month_belongs_to_it() -> None:
    own = months(24)
    days = np.arange(own[0], own[-1], np.timedelta64(1, "D"))
    position, fresh = times.latest(times.nanoseconds(own), times.nanoseconds(days))
    assert fresh.all()
    assert np.array_equal(own.astype("M8[M]")[position], days.astype("M8[M]"))


@given(st.integers(-50, 50), st.integers(0, 60), st.sampled_from([5, 7, 30]))
def test_offsets_between_two_steps_are_moved_inwards(begin, length, step) -> None:
    end = begin + length
    inside = [k for k in range(-60, 120) if begin <= k * step <= end]
    extent = slice(f"{begin}min", f"{end}min")
    if not inside:
        with pytest.raises(ArgumentError, match="longer slice"):
            times.steps(extent, pd.Timedelta(step, "min"), "here")
        return
    assert times.steps(extent, pd.Timedelta(step, "min"), "here") == (inside[0], inside[-1] + 1)


@given(st.lists(st.booleans(), min_size=3, max_size=40), st.integers(-4, 2), st.integers(1, 5))
def test_no_window_crosses_a_gap_or_the_end(kept, low, width) -> None:
    stamps = np.flatnonzero([True, True, *kept])
    coordinate = np.datetime64("2020-01-01", "ns") + stamps * np.timedelta64(1, "h")
    usual = np.median(np.diff(stamps))
    gaps = times.gap_ends("time", coordinate)
    positions = np.arange(len(stamps))
    got = times.unbroken(positions, low, low + width, len(stamps), gaps)
    for at in positions.tolist():
        wanted = range(at + low, at + low + width)
        whole = wanted[0] >= 0 and wanted[-1] < len(stamps)
        whole = whole and all(stamps[k + 1] - stamps[k] <= times.GAP * usual for k in wanted[:-1])
        assert got[at] == whole


@pytest.mark.parametrize("kind", [cftime.DatetimeNoLeap, cftime.Datetime360Day])
def test_dates_of_a_calendar_go_there_and_back(kind) -> None:
    days = np.array([kind(1999, 12, 28) + datetime.timedelta(hours=7 * k) for k in range(40)])
    counted = times.nanoseconds(days)
    assert times.dates(counted, days).tolist() == days.tolist()
    since = counted + times.epoch(days)
    whole = cftime.num2date(since // 1000, "microseconds since 1970-01-01", days[0].calendar)
    assert whole.tolist() == days.tolist()


def test_real_dates_go_there_and_back() -> None:
    days = months(30)
    assert np.array_equal(times.dates(times.nanoseconds(days), days), days)
    assert times.epoch(days) == 0
