"""Two axes with a mask of pairs, compared with a listing of the pairs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.coverage import Once
from superbatch.archive.joint import JointAxis
from superbatch.archive.plan import Plan
from superbatch.archive.sequences import Axis
from superbatch.archive.starts import Starts
from superbatch.errors import ArgumentError


@st.composite
def axes(draw, name, weighted=False):
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=7))
    chunks = Chunks.irregular(sizes)
    width = draw(st.integers(1, min(4, chunks.length)))
    starts = None
    if draw(st.booleans()):
        fits = chunks.length - width + 1
        kept = draw(st.lists(st.booleans(), min_size=fits, max_size=fits))
        kept[draw(st.integers(0, fits - 1))] = True
        starts = Starts(np.flatnonzero(kept))
    axis = Axis(name, chunks, width, draw(st.integers(1, 3)), starts)
    if not weighted:
        return axis
    weights = np.random.default_rng(draw(st.integers(0, 9))).uniform(0.2, 3, axis.total)
    return Axis(name, chunks, width, axis.per_sequence, starts, weights)


@st.composite
def joints(draw, weighted=False):
    first, second = draw(axes("time", weighted)), draw(axes("site"))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    valid = rng.random((first.total, second.total)) < draw(st.sampled_from([0.05, 0.5, 0.95, 1]))
    valid[rng.integers(first.total), rng.integers(second.total)] = True
    return first, second, valid, JointAxis(first, second, valid)


def listing(first, second, valid):
    """The starts of all valid pairs, and the items that own them."""
    rows, columns = np.nonzero(valid)
    a, b = first.start(rows), second.start(columns)
    return list(zip(a.tolist(), b.tolist(), first.owner(a), second.owner(b), strict=True))


@given(joints())
def test_every_valid_pair_has_one_number(joint) -> None:
    first, second, valid, axis = joint
    listed = listing(first, second, valid)
    assert axis.total == len(listed)
    starts = axis.start(np.arange(axis.total))
    a, b = axis.split(starts)
    assert sorted(zip(a.tolist(), b.tolist(), strict=True)) == sorted(
        (x, y) for x, y, _, _ in listed
    )
    again = pickle.loads(pickle.dumps(axis))
    shuffled = np.random.default_rng(0).permutation(axis.total)
    assert np.array_equal(again.start(shuffled), starts[shuffled])


@given(joints())
def test_the_windows_of_an_item_are_neighbours(joint) -> None:
    first, second, valid, axis = joint
    owned: dict[tuple[int, int], int] = {}
    for _, _, i, j in listing(first, second, valid):
        owned[int(i), int(j)] = owned.get((int(i), int(j)), 0) + 1
    items = axis.owner(axis.start(np.arange(axis.total)))
    for item in np.unique(items):
        low, high = axis.bounds(np.array([item]))
        mine = np.flatnonzero(items == item)
        assert mine.tolist() == list(range(low[0], high[0]))
        pair = tuple(int(i[0]) for i in axis.split_item(np.array([item])))
        assert owned.pop(pair) == len(mine)
    assert not owned
    low, high = axis.bounds(np.setdiff1d(np.arange(4 * first.blocks * second.blocks), items))
    assert (low == high).all()
    groups = axis.groups()
    assert groups.items == axis.blocks == len(np.unique(items))
    assert (groups.each * groups.number).sum() == axis.total
    for group in range(len(groups.each)):
        members = np.arange(groups.number[group])
        found = groups.item(np.full(len(members), group), members)
        low, high = axis.bounds(found)
        assert (high - low == groups.each[group]).all()


@given(joints(), st.integers(1, 9))
def test_an_epoch_serves_each_pair_once(joint, visit) -> None:
    axis = joint[-1]
    once = Once([axis], visit, shuffle=True)
    numbers = once.windows(np.arange(axis.total), 3, 1)[:, 0]
    assert sorted(numbers.tolist()) == list(range(axis.total))


@given(joints(weighted=True))
def test_weights_of_the_first_axis_decide_how_often(joint) -> None:
    first, axis = joint[0], joint[-1]
    rows = np.searchsorted(
        first.start(np.arange(first.total)), axis.split(axis.start(np.arange(axis.total)))[0]
    )
    weights = first.weights[rows]
    # evenly spread places fall on each window by its weight
    places = 20_000
    drawn = np.bincount(axis.locate((np.arange(places) + 0.5) / places), minlength=axis.total)
    assert (np.abs(drawn / places - weights / weights.sum()) <= 2 / places).all()
    share, number = axis.shares()
    assert np.isclose((share * number).sum(), 1)
    low, high = axis.bounds(axis.owner(axis.start(np.zeros(1, dtype=np.int64))))
    inside = axis.draw(np.repeat(low, 20_000), np.repeat(high, 20_000), np.random.default_rng(0))
    assert ((inside >= low) & (inside < high)).all()
    mine = np.bincount(inside - low, minlength=int(high[0] - low[0])) / len(inside)
    expected = weights[low[0] : high[0]] / weights[low[0] : high[0]].sum()
    assert (np.abs(mine - expected) < 0.025).all()


def test_ranks_share_a_mask_without_a_pair_twice() -> None:
    rng = np.random.default_rng(5)
    first = Axis("time", Chunks.regular(200, 12), 3, 2)
    second = Axis("site", Chunks.irregular([3, 9, 5]), 1, 1)
    valid = rng.random((first.total, second.total)) < 0.4
    axis = JointAxis(first, second, valid)
    seen: list[int] = []
    batches = set()
    for rank in range(3):
        plan = Plan(
            [axis], samples=64, sequences=4, batch_size=8, coverage="once", rank=rank, world_size=3
        )
        batches.add(plan.epoch_batches)
        for index in range(plan.epoch_superbatches):
            seen += plan.superbatch(2, index).starts[:, 0].tolist()
    assert len(batches) == 1
    assert sorted(seen) == sorted(axis.start(np.arange(axis.total)).tolist())


def test_a_mask_with_rows_that_fill_several_pieces() -> None:
    rng = np.random.default_rng(1)
    first = Axis("time", Chunks.regular(9000, 700), 4, 1)
    second = Axis("site", Chunks.irregular([401, 299, 300]), 1, 1)
    valid = rng.random((first.total, second.total)) < 0.3
    axis = JointAxis(first, second, valid)
    assert axis.total == valid.sum()
    picked = rng.integers(0, axis.total, 3000)
    a, b = axis.split(axis.start(picked))
    assert valid[a, b].all()
    low, high = axis.bounds(axis.owner(axis.start(picked)))
    assert ((low <= picked) & (picked < high)).all()


def test_weights_of_the_second_axis_are_refused() -> None:
    first = Axis("time", Chunks.regular(4, 2), 1, 1)
    second = Axis("site", Chunks.regular(3, 3), 1, 1, weights=np.ones(3))
    with pytest.raises(ArgumentError, match="leave out weights"):
        JointAxis(first, second, np.ones((4, 3), dtype=bool))
