"""Boxes, against sets of positions."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive import boxes as bx
from superbatch.archive.boxes import Box


def positions(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(low, high) for low, high in box)))


@st.composite
def several(draw: st.DrawFn, most: int = 4) -> list[Box]:
    """Boxes in the same number of dimensions."""
    dims = draw(st.integers(1, 3))
    side = st.tuples(st.integers(0, 6), st.integers(1, 4)).map(lambda s: (s[0], s[0] + s[1]))
    box = st.tuples(*[side] * dims)
    return draw(st.lists(box, min_size=2, max_size=most))


@given(several(2))
def test_intersection_is_that_of_the_positions(boxes) -> None:
    a, b = boxes[:2]
    shared = bx.intersection(a, b)
    assert (positions(shared) if shared else set()) == positions(a) & positions(b)


@given(several())
def test_remainder_covers_what_is_left_once(boxes) -> None:
    box, *others = boxes
    parts = bx.remainder(box, others)
    found = [p for part in parts for p in positions(part)]
    assert len(found) == len(set(found))
    assert set(found) == positions(box) - set().union(*map(positions, others))
    assert all(positions(part) for part in parts)


@given(several(2))
def test_difference_is_the_remainder_of_one(boxes) -> None:
    a, b = boxes[:2]
    found = [p for part in bx.difference(a, b) for p in positions(part)]
    assert sorted(found) == sorted(positions(a) - positions(b))


@given(several(2))
def test_slices_cut_a_box_out_of_an_array(boxes) -> None:
    inner, outer = boxes[:2]
    shared = bx.intersection(inner, outer)
    if shared is None:
        return
    # The array's values are their own coordinates.
    axes = [np.arange(low, high) for low, high in outer]
    array = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    cut = array[bx.slices(shared, outer)]
    assert cut.shape[:-1] == bx.shape(shared)
    assert set(map(tuple, cut.reshape(-1, len(outer)).tolist())) == positions(shared)
