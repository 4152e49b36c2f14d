"""Every window has one owner, and what an owner says of its windows is true."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.sequences import Axis
from superbatch.archive.starts import Starts
from tests import brute


@given(brute.lines())
def test_every_start_has_the_owner_that_a_loop_finds(line: brute.Line) -> None:
    axis = line.axis()
    every = line.starts()
    assert axis.total == len(every)
    assert axis.start(np.arange(axis.total)).tolist() == every
    assert axis.owner(np.array(every)).tolist() == [line.owner(s) for s in every]


@given(brute.lines())
def test_items_divide_the_windows_among_them(line: brute.Line) -> None:
    axis = line.axis()
    items = np.arange(2 * axis.blocks)
    low, high = axis.bounds(items)
    every = np.array(line.starts())
    seen = []
    for item, a, b in zip(items.tolist(), low.tolist(), high.tolist(), strict=True):
        mine = every[a:b].tolist()
        assert mine == [s for s in every.tolist() if line.owner(s) == item]
        seen += mine
    assert sorted(seen) == every.tolist()


@given(brute.lines())
def test_span_is_what_an_item_could_own_if_nothing_were_ruled_out(line: brute.Line) -> None:
    axis = line.axis()
    free = brute.Line(line.sizes, line.width, line.per_sequence)
    for item in range(2 * axis.blocks):
        mine = [s for s in free.starts() if free.owner(s) == item]
        first, last = axis.span(np.int64(item))
        if mine:
            assert (int(first), int(last)) == (mine[0], mine[-1])
        else:
            assert first > last


@given(brute.lines())
def test_groups_list_every_item_that_owns_a_window_once(line: brute.Line) -> None:
    groups = line.axis().groups()
    found = {}
    for group, (each, number) in enumerate(
        zip(groups.each.tolist(), groups.number.tolist(), strict=True)
    ):
        members = np.arange(number)
        for item in groups.item(np.full(number, group), members).tolist():
            assert item not in found
            found[item] = each
    assert found == line.counts()


@given(brute.sizes(), st.data())
def test_groups_in_closed_form_are_those_of_the_same_starts_listed(sizes, data) -> None:
    length = sum(sizes)
    width = data.draw(st.integers(1, length))
    per_sequence = data.draw(st.integers(1, 4))
    chunks = Chunks.irregular(sizes)
    closed = Axis("x", chunks, width, per_sequence)
    listed = Axis("x", chunks, width, per_sequence, Starts(np.arange(length - width + 1)))
    for one, other in ((closed.groups(), listed.groups()), (listed.groups(), closed.groups())):
        assert one.items == other.items
        assert (one.each * one.number).sum() == (other.each * other.number).sum()


def test_groups_of_a_regular_axis_cost_nothing_by_its_length() -> None:
    def peak(chunks: int) -> int:
        axis = Axis("time", Chunks.regular(36 * chunks, 36), 12, 3)
        tracemalloc.start()
        try:
            axis.groups()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    assert peak(2_000_000) < peak(2_000) + 10_000


@given(brute.lines(weighted=False), st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
def test_locate_divides_the_unit_interval_into_equal_parts(line: brute.Line, us) -> None:
    found = line.axis().locate(np.array(us)).tolist()
    n = len(line.starts())
    for u, window in zip(us, found, strict=True):
        assert 0 <= window < n
        assert window / n <= u + 1e-12
        assert u <= (window + 1) / n + 1e-12


@given(brute.lines(weighted=True), st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
def test_locate_divides_the_unit_interval_by_weight(line: brute.Line, us) -> None:
    found = line.axis().locate(np.array(us)).tolist()
    share = line.probability()
    for u, window in zip(us, found, strict=True):
        assert sum(share[:window]) <= u + 1e-9
        assert u <= sum(share[: window + 1]) + 1e-9


@given(brute.lines(), st.integers(0, 2**32))
def test_draws_stay_inside_of_their_ranges(line: brute.Line, seed: int) -> None:
    axis = line.axis()
    items = np.array(sorted(line.counts()))
    low, high = axis.bounds(np.repeat(items, 50))
    drawn = axis.draw(low, high, np.random.default_rng(seed))
    assert ((low <= drawn) & (drawn < high)).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_draws_inside_of_an_item_follow_the_weights(weighted: bool) -> None:
    line = brute.Line([7, 7, 7, 4], 5, 1)
    if weighted:
        line.weights = [1.0 + (s * 7 % 5) for s in line.starts()]
    axis = line.axis()
    for item in line.counts():
        low, high = axis.bounds(np.full(20_000, item))
        drawn = axis.draw(low, high, np.random.default_rng(item))
        share = np.array(line.probability())[low[0] : high[0]]
        counts = np.bincount(drawn - low[0], minlength=len(share))
        if len(share) > 1:
            assert abs(brute.chi_square(counts, share / share.sum() * 20_000)) < 4


# situation: an array of 100 steps in chunks, windows of 10: all 91 starts are reached
@pytest.mark.parametrize("per_sequence", [1, 3, 100])
@pytest.mark.parametrize("chunk", [1, 7, 10, 36, 100])
def test_91_starts(chunk: int, per_sequence: int) -> None:
    axis = Axis("time", Chunks.regular(100, chunk), 10, per_sequence)
    low, high = axis.bounds(np.arange(2 * axis.blocks))
    starts = np.concatenate([axis.start(np.arange(a, b)) for a, b in zip(low, high, strict=True)])
    assert sorted(starts.tolist()) == list(range(91))


# situation: irregular chunks (24, 24, 7)
def test_irregular_chunks() -> None:
    line = brute.Line([24, 24, 7], 10, 1)
    assert line.counts() == {0: 15, 1: 9, 2: 15, 3: 7}
    axis = line.axis()
    assert axis.owner(np.arange(46)).tolist() == [line.owner(s) for s in range(46)]


@given(st.lists(st.integers(0, 60), unique=True), st.integers(-3, 64))
def test_starts_kept_as_runs_answer_as_the_list_does(positions, place) -> None:
    positions = sorted(positions)
    starts = Starts(np.array(positions, np.int64))
    assert len(starts) == len(positions)
    assert starts.position(np.arange(len(positions))).tolist() == positions
    assert starts.below(np.int64(place)) == sum(p < place for p in positions)


def test_starts_take_the_memory_of_their_runs() -> None:
    # One gap in a long axis makes two runs of it, not a list of all its windows.
    def size(n: int) -> int:
        positions = np.delete(np.arange(n), n // 2)
        return len(pickle.dumps(Starts(positions)))

    assert size(1_000_000) == size(1_000)
