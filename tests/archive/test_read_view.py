"""Views of a stored array, against NumPy's own indexing of an array that names its positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.read_view import NotPlain, View

SHAPE = (7, 5, 6)
STORED = np.arange(np.prod(SHAPE)).reshape(SHAPE)


def see(view: View) -> np.ndarray:
    """What a view shows, read as a reader does: rising positions, written through `stored`."""
    out = np.full(view.shape, -1)
    box = tuple((0, n) for n in view.shape)
    view.stored(out)[...] = STORED[np.ix_(*view.select(box))]
    return out


@st.composite
def slices(draw, length):
    if length and draw(st.integers(0, 5)) == 0:
        return draw(st.integers(-length, length - 1))
    ends = st.none() | st.integers(-length - 2, length + 2)
    step = draw(st.none() | st.integers(-4, 4).filter(bool))
    return slice(draw(ends), draw(ends), step)


@given(st.data())
def test_indexing_and_transposing_is_what_numpy_does(data):
    view, seen = View.whole(SHAPE), STORED
    for _ in range(data.draw(st.integers(1, 4))):
        key = tuple(data.draw(slices(n)) for n in seen.shape)
        view, seen = view.index(key), seen[key]
        order = data.draw(st.permutations(range(seen.ndim)))
        view, seen = view.transpose(order), seen.transpose(order)
    assert view.shape == seen.shape
    np.testing.assert_array_equal(see(view), seen)


@given(st.data())
def test_a_box_selects_only_what_it_needs(data):
    key = tuple(data.draw(slices(n)) for n in SHAPE)
    view, seen = View.whole(SHAPE).index(key), STORED[key]
    box = []
    for n in seen.shape:
        low = data.draw(st.integers(0, n))
        box.append((low, data.draw(st.integers(low, n))))
    part = view.select(tuple(box))
    want = seen[tuple(slice(*ends) for ends in box)]
    assert np.prod([len(positions) for positions in part]) == want.size
    assert all(positions.step > 0 for positions in part)
    out = np.full(want.shape, -1)
    view.stored(out)[...] = STORED[np.ix_(*part)]
    np.testing.assert_array_equal(out, want)


@given(st.integers(1, 40), st.integers(1, 9), st.data())
def test_borders_seen_are_where_the_stored_chunk_changes(length, size, data):
    stored = Chunks.regular(length, size)
    step = data.draw(st.integers(-7, 7).filter(bool))
    positions = range(length)[data.draw(st.integers(-length, length)) :: step]
    view = View((positions,), (0,))
    (seen,) = view.chunks((stored,))
    expected, last = [], None
    for position in positions:
        chunk = position // size
        expected.append((expected[-1] if expected else -1) + (chunk != last))
        last = chunk
    assert seen.length == len(positions)
    assert seen.index(np.arange(len(positions))).tolist() == expected


def test_borders_of_an_irregular_grid_are_seen_flipped():
    view = View.whole((55,)).index((slice(None, None, -1),))
    (seen,) = view.chunks((Chunks.irregular([24, 7, 24]),))
    assert seen == Chunks.irregular([24, 7, 24])
    (seen,) = view.chunks((Chunks.irregular([20, 7, 28]),))
    assert seen == Chunks.irregular([28, 7, 20])


def test_even_positions_are_a_range():
    view = View.whole(SHAPE).index((np.array([1, 3, 5]), slice(None), np.array([-1, -2])))
    np.testing.assert_array_equal(see(view), STORED[1:6:2][:, :, [-1, -2]])


@pytest.mark.parametrize("positions", [[0, 1, 3], [2, 2], [-1, 0], [True, False]])
def test_uneven_positions_are_refused(positions):
    with pytest.raises(NotPlain):
        View.whole(SHAPE).index((np.array(positions), slice(None), slice(None)))


@given(st.permutations(range(3)))
def test_broadcasting_indexers_are_a_transposed_box(order):
    key = np.ix_(np.arange(6, 0, -2), np.arange(1, 4), np.array([4]))
    turned = tuple(item.transpose(order) for item in key)
    seen = STORED[turned]
    view = View.whole(SHAPE).vindex(turned, seen.shape)
    np.testing.assert_array_equal(see(view), seen)
    # The same arrays, broadcast to full size, as xarray leaves them after a slice.
    full = tuple(np.array(item) for item in np.broadcast_arrays(*turned))
    np.testing.assert_array_equal(see(View.whole(SHAPE).vindex(full, seen.shape)), seen)


def test_indexers_that_pick_points_are_refused():
    points = np.array([0, 1, 2])
    with pytest.raises(NotPlain):
        View.whole(SHAPE).vindex((points, points, np.array(0)), (3,))
    with pytest.raises(NotPlain):
        View.whole(SHAPE).vindex((np.array([[0, 1], [1, 2]]),) * 3, (2, 2))
    with pytest.raises(NotPlain):
        View.whole(SHAPE).vindex((np.array(0), np.array(0), np.array(0)), (4,))
