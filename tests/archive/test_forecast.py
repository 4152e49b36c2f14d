"""Runs and steps of a forecast for every anchor time, compared with a loop over runs and steps."""

from __future__ import annotations

import datetime
import itertools

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import superbatch as sb
from superbatch.archive import forecast, times
from superbatch.errors import ArgumentError

MINUTE = 60_000_000_000
HOUR = 60 * MINUTE
FIRST = np.datetime64("2022-06-01", "ns")


def dates(minutes) -> np.ndarray:
    return FIRST + np.asarray(minutes) * np.timedelta64(MINUTE, "ns")


def archive(run_minutes, step_hours, units=None) -> xr.DataArray:
    runs, steps = dates(run_minutes), np.asarray(step_hours)
    shape = len(runs), len(steps)
    data = xr.DataArray(np.zeros(shape), {"init_time": runs, "step": steps}, ("init_time", "step"))
    if units is not None:
        data.step.attrs["units"] = units
    return data


def choose(window: sb.Forecast, anchors: np.ndarray) -> forecast.Chosen:
    data = window.data
    coords = {dim: data[dim].values for dim in data.dims}
    return forecast.choose(window, "nwp", data.dims, coords, anchors, 0)


def in_a_loop(window, anchor_minutes, low, high, wait, past, max_age, accumulated):
    """For one anchor: pairs of run and step, by looking at all; None where something is not there."""
    runs = ((window.data.init_time.values - FIRST).astype("i8") // MINUTE).tolist()
    steps = [round(h * 60) for h in window.data.step.values]
    unit = min(b - a for a, b in itertools.pairwise(steps))
    phase = runs[0] % unit
    begin = (anchor_minutes - phase) // unit * unit + phase
    found = []
    newest = [r for r in runs if r <= anchor_minutes - wait]
    if not newest or (max_age is not None and anchor_minutes - newest[-1] > max_age):
        return None
    # offsets are moved inwards
    for offset in range(-(-low // unit), high // unit + 1):
        valid = begin + offset * unit
        known = [r for r in newest if past == "run" or valid > anchor_minutes or r <= valid]
        if not known or valid - known[-1] not in steps:
            return None
        step = steps.index(valid - known[-1])
        before = steps[step - 1] if step else 0
        if accumulated and steps[step] - before > unit:
            return None
        found.append((runs.index(known[-1]), step))
    return found


@given(st.data())
def test_runs_and_steps_are_those_of_a_loop(data) -> None:
    draw = data.draw
    # runs three or six hours apart, some missing, off the hour
    off = draw(st.sampled_from([0, 30, 45]))
    kept = draw(st.lists(st.integers(0, 15), min_size=1, max_size=12, unique=True))
    runs = sorted(off + 180 * k for k in kept)
    steps = draw(
        st.sampled_from(
            [
                np.arange(9.0),
                np.r_[1:10],
                np.r_[3:14],
                np.r_[0:6, 8:20:3],
                np.arange(0, 6, 0.5),
                [0, 3, 6, 9],
            ]
        )
    )
    low = draw(st.integers(-200, 60))
    high = draw(st.integers(low + 180, low + 400))
    wait = draw(st.sampled_from([0, 45, 120, 300]))
    past = draw(st.sampled_from(["run", "freshest"]))
    max_age = draw(st.sampled_from([None, 240, 500]))
    accumulated = draw(st.booleans())
    window = sb.Forecast(
        archive(runs, steps),
        time=slice(f"{low}min", f"{high}min"),
        delay=f"{wait}min",
        past=past,
        max_age=None if max_age is None else f"{max_age}min",
        accumulated=accumulated,
    )
    minutes = np.arange(0, 16 * 180, 35)
    chosen = choose(window, dates(minutes))
    good = np.logical_and.reduce(list(chosen.valid.values()))
    for row, anchor in enumerate(minutes.tolist()):
        wanted = in_a_loop(window, anchor, low, high, wait, past, max_age, accumulated)
        assert good[row] == (wanted is not None), (anchor, wanted)
        if wanted is not None:
            got = zip(chosen.points.run[0, row], chosen.points.step[0, row], strict=True)
            assert list(got) == wanted


def test_late_runs_add_to_the_delay_and_no_run_is_younger_than_allowed() -> None:
    window = sb.Forecast(
        archive(180 * np.arange(20), np.arange(24)),
        time=slice("0h", "2h"),
        delay="2h",
        late={"1h": 0.2, "6h": 0.3},
    )
    anchors = 1500 + np.arange(0, 500, 5)
    points = choose(window, dates(anchors)).points
    assert np.allclose(points.thresholds, [0.2, 0.5])
    for variant, wait in enumerate([120, 180, 480]):
        newest = (anchors - wait) // 180
        assert np.array_equal(points.run[variant], np.repeat(newest[:, None], 3, axis=1))
    noise = np.random.default_rng(0).random(20000)
    shares = np.bincount(points.variants(noise), minlength=3) / len(noise)
    assert np.allclose(shares, [0.5, 0.2, 0.3], atol=0.02)
    assert (points.variants(np.ones(5)) == 0).all()


@pytest.mark.parametrize(
    ("steps", "units"),
    [
        (np.arange(7) * np.timedelta64(1, "h"), None),
        (np.arange(7), None),
        (np.arange(7.0), "hours"),
        (np.arange(0, 420, 60, dtype="i4"), "minutes"),
        (np.arange(7.0) / 24, "days"),
        (np.arange(7) * 3600, "seconds"),
    ],
)
def test_steps_are_durations_or_numbers(steps, units) -> None:
    window = sb.Forecast(archive([0, 180], steps, units), time=slice("0h", "2h"))
    chosen = choose(window, dates([200, 300]))
    assert chosen.points.run[0].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert chosen.points.step[0].tolist() == [[0, 1, 2], [2, 3, 4]]


def test_a_calendar_of_its_own() -> None:
    begin = cftime.Datetime360Day(2000, 2, 28)
    anchors = np.array([begin + datetime.timedelta(hours=h) for h in range(60)])
    data = xr.DataArray(
        np.zeros((10, 9)), {"init_time": anchors[::6], "step": np.arange(9)}, ("init_time", "step")
    )
    chosen = choose(sb.Forecast(data, time=slice("0h", "2h"), delay="1h"), anchors)
    for hour in range(1, 60):
        run = (hour - 1) // 6
        assert chosen.points.run[0, hour].tolist() == [run] * 3
        assert chosen.points.step[0, hour].tolist() == [hour - 6 * run + k for k in range(3)]
    since = times.dates(chosen.valid_times[5], anchors)
    assert since.tolist() == anchors[5:8].tolist()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (archive([0, 180, 180], range(5)), {}, "1 stamps of 'init_time' repeat"),
        (archive([0, 360, 180], range(5)), {}, "go back"),
        (archive([360, 180, 0], range(5)), {}, "fall: sort them"),
        (archive([0, 180], [0, 2, 1]), {}, "do not rise"),
        (archive([0, 180], range(5), "furlongs"), {}, "in 'furlongs'"),
        (archive([0, 180], list("abc")), {}, "not steps"),
        (archive([0, 180], range(5)), {"late": {"-1h": 0.5}}, "above 0"),
        (archive([0, 180], range(5)), {"delay": "soon"}, "not a time offset"),
        (archive([0, 180], range(0, 15, 3)), {"time": slice("1h", "2h")}, "holds no position"),
    ],
)
def test_what_cannot_work_is_said(data, options, message) -> None:
    window = sb.Forecast(data, **{"time": slice("0h", "3h"), **options})
    with pytest.raises(ArgumentError, match=message):
        choose(window, dates([0, 60]))
