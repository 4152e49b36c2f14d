"""Which windows may be drawn, against a loop over every window and every position in it."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.grid import Dimension
from superbatch.archive.times import gap_ends
from superbatch.archive.validity import Allowed, allowed
from superbatch.errors import ArgumentError

DAY = np.timedelta64(1, "D")
FIRST = np.datetime64("2020-01-01", "ns")


def dimension(coordinate: Any, low: int, high: int, length: int | None = None) -> Dimension:
    count = len(coordinate) if length is None else length
    return Dimension("time", count, Chunks.regular(count, count), coordinate, low, high)


def days(numbers: list[int], kind: str = "datetime64") -> np.ndarray:
    if kind == "cftime":
        first = cftime.Datetime360Day(2020, 1, 1)
        out = np.empty(len(numbers), object)
        out[:] = [first + datetime.timedelta(days=n) for n in numbers]
        return out
    return FIRST + np.array(numbers, dtype=np.int64) * DAY


def listed(found: Allowed, dim: Dimension) -> list[int]:
    if found.starts is None:
        return list(range(dim.length - dim.width + 1))
    return found.starts.position(np.arange(len(found.starts))).tolist()


def windows(dim: Dimension) -> list[list[int]]:
    """The positions of each window that fits, by its start."""
    fits = range(dim.length - dim.width + 1)
    return [[start + k for k in range(dim.width)] for start in fits]


@st.composite
def gappy(draw: st.DrawFn) -> tuple[list[int], Dimension, list[int]]:
    """Days with gaps among them, a window, and the starts that no gap breaks."""
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 1, 2, 3, 40]), min_size=4, max_size=30))
    numbers = np.cumsum([0, *steps]).tolist()
    if np.median(np.diff(numbers)) != 1:
        numbers = list(range(len(numbers)))
    if draw(st.booleans()):
        numbers = [-n for n in numbers]
    low = draw(st.integers(-3, 0))
    high = draw(st.integers(1, max(1, min(5, len(numbers) + low))))
    dim = dimension(days(numbers, draw(st.sampled_from(["datetime64", "cftime"]))), low, high)
    whole = []
    for window in windows(dim):
        stamps = [numbers[p] for p in window]
        if all(abs(b - a) == 1 for a, b in itertools.pairwise(stamps)):
            whole.append(window[0])
    return numbers, dim, whole


# situation: time has gaps: missing hours, a missing day
@given(gappy())
def test_no_window_crosses_a_gap(case) -> None:
    _, dim, whole = case
    found = allowed(dim)
    assert listed(found, dim) == whole
    if len(whole) < len(windows(dim)):
        assert found.ruled_out == {"gap": len(windows(dim)) - len(whole)}


@given(gappy(), st.data())
def test_valid_and_weights_are_those_of_the_anchor(case, data) -> None:
    _, dim, whole = case
    mask = data.draw(st.lists(st.booleans(), min_size=dim.length, max_size=dim.length))
    weights = data.draw(
        st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=dim.length, max_size=dim.length)
    )
    right = [s for s in whole if mask[s - dim.low]]
    assert listed(allowed(dim, valid=np.array(mask)), dim) == right
    by_function = allowed(dim, valid=lambda stamps: np.array(mask)[: len(stamps)])
    assert listed(by_function, dim) == right
    both = allowed(dim, valid=mask, weights=weights)
    heavy = [s for s in right if weights[s - dim.low] > 0]
    assert listed(both, dim) == heavy
    relative = np.array([weights[s - dim.low] for s in heavy])
    assert both.weights is not None
    assert np.allclose(both.weights * relative.sum(), relative * both.weights.sum())
    assert sum(both.ruled_out.values()) == len(windows(dim)) - len(heavy)


def test_the_function_sees_the_times_of_the_anchors() -> None:
    dim = dimension(days(list(range(20))), -2, 3)
    found = allowed(dim, valid=lambda times: times >= np.datetime64("2020-01-11"))
    # The anchor is the third position of a window.
    assert listed(found, dim) == list(range(8, 16))
    plain = dimension(None, 0, 3, length=9)
    assert listed(allowed(plain, valid=lambda positions: positions % 2 == 0), plain) == [0, 2, 4, 6]


# situation: train, validation and test periods
@given(
    gappy(), st.lists(st.tuples(st.integers(-5, 60), st.integers(0, 40)), min_size=1, max_size=3)
)
def test_a_window_lies_in_one_period_as_a_whole(case, given_) -> None:
    numbers, dim, whole = case
    kind = type(dim.coordinate[0]) if dim.coordinate.dtype == object else None
    sign = -1 if numbers[-1] < 0 else 1
    periods, inside = [], []
    for begin, length in given_:
        ends = [begin * sign, (begin + length) * sign]
        stamps = days(ends, "cftime" if kind else "datetime64")
        periods.append(slice(*stamps.tolist()) if kind else slice(*stamps))
        inside.append({n for n in numbers if min(ends) <= n <= max(ends)})
    right = [
        start
        for start in whole
        if any({numbers[start + k] for k in range(dim.width)} <= period for period in inside)
    ]
    assert listed(allowed(dim, valid=periods), dim) == right


def test_periods_as_people_write_them() -> None:
    dim = dimension(days(list(range(800))), 0, 10)
    train = allowed(dim, valid=[slice(None, "2020-06"), slice("2021-01-01", "2021")])
    test = allowed(dim, valid=[slice("2020-07", "2020-12-31")])
    seen = [
        {p for start in listed(found, dim) for p in range(start, start + 10)}
        for found in (train, test)
    ]
    assert not seen[0] & seen[1]
    assert seen[1] == set(range(182, 366))
    calendar = dimension(days(list(range(800)), "cftime"), 0, 10)
    found = listed(allowed(calendar, valid=[slice("2021-02", "2021-02")]), calendar)
    assert found == list(range(390, 411))


def test_periods_of_a_dimension_without_coordinate_are_positions() -> None:
    dim = dimension(None, -1, 2, length=20)
    assert listed(allowed(dim, valid=[slice(3, 9), slice(15, None)]), dim) == [
        3,
        4,
        5,
        6,
        15,
        16,
        17,
    ]
    assert listed(allowed(dim, valid=[slice(-5, None)]), dim) == [15, 16, 17]


def test_nothing_is_listed_where_nothing_is_ruled_out() -> None:
    found = allowed(dimension(days(list(range(50))), 0, 5))
    assert found.starts is None
    assert found.weights is None
    assert found.ruled_out == {}


def test_months_have_no_gaps_and_a_missing_month_is_one() -> None:
    months = np.arange("2000-01", "2004-01", dtype="datetime64[M]").astype("datetime64[ns]")
    assert gap_ends("time", months) is None
    assert gap_ends("time", np.delete(months, 20)).tolist() == [20]


# situation: duplicated stamps, one stamp out of order
@pytest.mark.parametrize("kind", ["datetime64", "cftime"])
@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1, 1, 2, 3], ["1 stamps", "repeat", "position 2", "2020-01-02", "drop_duplicates"]),
        ([0, 1, 5, 3, 4], ["1 stamps", "go back", "position 3", "2020-01-04", "sortby"]),
        ([0, 1, 1, 5, 3, 4], ["2 stamps", "repeat or go back", "position 2"]),
        ([0] * 6, ["5 stamps", "repeat"]),
    ],
)
def test_repeated_and_disordered_stamps_are_named_in_one_error(numbers, words, kind) -> None:
    with pytest.raises(ArgumentError) as caught:
        allowed(dimension(days(numbers, kind), 0, 2))
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


day = dimension(days(list(range(10))), 0, 3)
plain = dimension(None, 0, 3, length=10)


@pytest.mark.parametrize(
    ("dim", "valid", "message"),
    [
        (day, np.ones(9, bool), "valid has bool of shape \\(9,\\): .* each of the 10 positions"),
        (day, np.ones((10, 1), bool), "shape \\(10, 1\\)"),
        (day, np.ones(10), "valid has float64"),
        (day, [], "valid has float64 of shape \\(0,\\)"),
        (day, True, "shape \\(\\)"),
        (day, slice("2020", "2021"), "a list of slices"),
        (day, "2020", "valid has"),
        (day, [[True], [True, False]], "one bool for each of the 10"),
        (day, lambda t: True, "valid\\(...\\) returned bool of shape \\(\\)"),
        (day, lambda t: None, "valid\\(...\\) returned object"),
        (day, [slice("2020-01-02", "2020-01-04", 2)], "slices without a step"),
        (day, [slice(None), "2020"], "slices without a step"),
        (day, [slice("someday", "2020")], "'someday'.* cannot be found along 'time'"),
        (day, [slice(1.5, 3.5)], "cannot be found along 'time'"),
        (plain, [slice("2020", "2021")], "cannot be found along 'time'"),
    ],
)
def test_what_valid_may_not_be(dim, valid, message) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        allowed(dim, valid=valid)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(9), "weights has shape \\(9,\\): .* each of the 10 positions"),
        ([-1.0] + [1.0] * 9, "weights has -1.0 in it"),
        ([np.nan] + [1.0] * 9, "weights has nan in it"),
        ([np.inf] + [1.0] * 9, "weights has inf in it"),
        (["much"] * 10, "numbers"),
        ([[1], [1, 2]], "numbers"),
        (1.0, "shape \\(\\)"),
    ],
)
def test_what_weights_may_not_be(weights, message) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        allowed(day, weights=weights)
    assert "\n" not in str(caught.value)


def test_weights_of_any_size_keep_their_proportions() -> None:
    for factor in (1e-300, 1e300, 1e308):
        found = allowed(day, weights=np.array([0.25, 1.0] * 5) * factor)
        assert np.isfinite(np.sum(found.weights))
        assert np.allclose(found.weights / found.weights.max(), [0.25, 1.0] * 4)
