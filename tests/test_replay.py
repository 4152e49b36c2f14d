"""How often a superbatch is passed over, and in which order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.errors import ArgumentError
from superbatch.replay import MOST_ECHOES, Replays, batches, order


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (1, (1, 1)),
        (np.int64(3), (3, 3)),
        ((1, 4), (1, 4)),
        ([2, 2], (2, 2)),
        ((1, np.int32(9)), (1, 9)),
        ("auto", (1, MOST_ECHOES)),
    ],
)
def test_what_replays_may_be(given_, expected) -> None:
    found = Replays.of(given_)
    assert (found.least, found.most) == expected
    assert found.fixed == (expected[0] == expected[1])
    fixed = Replays.of(given_, deterministic=True)
    assert (fixed.least, fixed.most, fixed.fixed) == (expected[0], expected[0], True)


@pytest.mark.parametrize(
    "wrong",
    [0, -1, True, 1.5, "many", "", None, (1,), (1, 2, 3), (2, 1), (0, 3), (1, 2.5), (True, 2), {}],
)
def test_what_replays_may_not_be(wrong) -> None:
    with pytest.raises(ArgumentError, match="write") as caught:
        Replays.of(wrong)
    assert repr(wrong) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("load", "serve", "passes"),
    [
        (10.0, 10.0, 1),
        (10.0, 9.9, 2),
        (10.0, 4.0, 3),
        (10.0, 0.1, 5),
        (0.1, 10.0, 1),
        (1.0, 0.0, 1),
    ],
)
def test_auto_follows_the_ratio_of_loading_to_training(load, serve, passes) -> None:
    assert Replays.of("auto").limit(load, serve) == passes


def test_a_given_range_does_not_follow_time() -> None:
    assert Replays.of((1, 9)).limit(1.0, 1000.0) == 9


at = {"seed": 0, "epoch": 0, "superbatch": 0, "rank": 0}


@given(st.integers(0, 300), st.integers(0, 5), st.booleans())
def test_a_pass_takes_every_row_once(samples: int, number: int, shuffle: bool) -> None:
    rows = order(samples, number, shuffle=shuffle, **at)
    assert rows.dtype == np.int64
    assert sorted(rows.tolist()) == list(range(samples))
    if number == 0 or not shuffle:
        assert rows.tolist() == list(range(samples))


@pytest.mark.parametrize("changed", [{"seed": 1}, {"epoch": 1}, {"superbatch": 1}, {"rank": 1}])
def test_each_replay_has_an_order_of_its_own_that_repeats(changed) -> None:
    first = order(100, 1, shuffle=True, **at).tolist()
    assert order(100, 1, shuffle=True, **at).tolist() == first
    assert order(100, 2, shuffle=True, **at).tolist() != first
    assert order(100, 1, shuffle=True, **{**at, **changed}).tolist() != first


@given(st.lists(st.integers(1, 9), max_size=20))
def test_batches_are_the_rows_in_order(sizes: list[int]) -> None:
    rows = order(sum(sizes), 3, shuffle=True, **at)
    found = list(batches(rows, sizes))
    assert [len(batch) for batch in found] == sizes
    assert [row for batch in found for row in batch.tolist()] == rows.tolist()
