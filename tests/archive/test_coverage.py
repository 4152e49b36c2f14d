"""An epoch that serves each window once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.coverage import Once
from superbatch.archive.sequences import Axis
from tests import brute


def once(lines, visit, shuffle=True) -> Once:
    return Once([line.axis(str(i)) for i, line in enumerate(lines)], visit, shuffle)


def starts_of(order: Once, places, seed=0, epoch=0) -> list[tuple[int, ...]]:
    ordinals = order.windows(np.asarray(places, np.int64), seed, epoch)
    columns = [axis.start(ordinals[:, i]).tolist() for i, axis in enumerate(order.axes)]
    return list(zip(*columns, strict=True))


archives = st.lists(brute.lines(most=14, weighted=False), min_size=1, max_size=3)


@given(archives, st.integers(1, 40), st.booleans(), st.integers(0, 2**40), st.integers(0, 9))
def test_every_window_comes_exactly_once(lines, visit, shuffle, seed, epoch) -> None:
    order = once(lines, visit, shuffle)
    every = brute.windows(lines)
    assert order.total == len(every)
    got = Counter(starts_of(order, range(order.total), seed, epoch))
    assert got == Counter(every)


@given(archives, st.integers(1, 40), st.data())
def test_a_place_has_its_window_whoever_asks(lines, visit, data) -> None:
    order = once(lines, visit)
    whole = starts_of(order, range(order.total))
    some = data.draw(st.lists(st.integers(0, order.total - 1), min_size=1))
    assert starts_of(once(lines, visit), some) == [whole[place] for place in some]


@given(archives)
def test_without_shuffle_the_last_dimension_runs_fastest(lines) -> None:
    order = once(lines, 7, shuffle=False)
    assert starts_of(order, range(order.total)) == brute.windows(lines)


@given(archives, st.integers(1, 40))
def test_a_full_visit_stays_in_one_sequence(lines, visit) -> None:
    # What is left of the sequences after their full visits shares visits: nowhere else may a visit
    # hold windows of two sequences.
    order = once(lines, visit)
    sizes = Counter(brute.owner(lines, start) for start in brute.windows(lines))
    left = sum(n % visit for n in sizes.values())
    whole = starts_of(order, range(order.total))
    mixed = 0
    for at in range(0, order.total, visit):
        if len({brute.owner(lines, start) for start in whole[at : at + visit]}) > 1:
            mixed += 1
    assert mixed <= -(-left // visit)


# situation: the order of epoch 0 and of epoch 1 differ; each repeats for its seed
def test_epochs_and_seeds_differ_and_repeat() -> None:
    order = once([brute.Line([10] * 10, 3, 2)], 8)
    orders = {
        (seed, epoch): starts_of(order, range(order.total), seed, epoch)
        for seed in range(3)
        for epoch in range(3)
    }
    assert len({tuple(o) for o in orders.values()}) == 9
    again = once([brute.Line([10] * 10, 3, 2)], 8)
    assert all(starts_of(again, range(again.total), *key) == o for key, o in orders.items())


def test_each_window_is_as_likely_at_the_front_as_any_other() -> None:
    # Over many epochs, the first visit holds each window equally often: 48 of 96 windows each time.
    line = brute.Line([24] * 4, 1, 1)
    order = once([line], 24)
    counts = np.zeros(96)
    for epoch in range(2000):
        for (start,) in starts_of(order, range(0, 48, 4), 5, epoch):
            counts[start] += 1
    assert brute.chi_square(counts, np.full(96, 2000 * 12 / 96)) < 4


def test_the_first_windows_of_a_visit_are_shuffled_too() -> None:
    # The place inside of a visit tells nothing about the place inside of the sequence.
    order = once([brute.Line([64], 1, 1)], 64)
    first = Counter(
        starts_of(order, [0], seed, epoch)[0] for seed in range(4) for epoch in range(800)
    )
    counts = [first[(start,)] for start in range(64)]
    assert abs(brute.chi_square(counts, [3200 / 64] * 64)) < 4


@pytest.mark.parametrize("width", [1, 12, 200])
def test_far_places_of_a_huge_archive_hold_distinct_windows(width: int) -> None:
    axis = Axis("time", Chunks.regular(36 * 2_000_000 - 5, 36, offset=7), width, 3)
    order = Once([axis], 128, True)
    places = np.concatenate([np.arange(4096), order.total - 1 - np.arange(4096)])
    windows = order.windows(places, 0, 0)[:, 0]
    assert len(np.unique(windows)) == len(places)
    assert windows.min() >= 0
    assert windows.max() < axis.total
    # Half of them lie in the first half of the archive.
    assert 0.3 < (windows < axis.total // 2).mean() < 0.7
