"""Chunk borders, against the obvious list of which chunk holds each position."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks


def holders(chunks: Chunks) -> list[int]:
    """The chunk of each position, by walking along the borders."""
    return [
        k
        for k in range(chunks.count)
        for _ in range(int(chunks.start(k)), int(chunks.start(k + 1)))
    ]


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_regular_borders_are_those_of_the_grid(length, size, data):
    offset = data.draw(st.integers(0, size - 1))
    chunks = Chunks.regular(length, size, offset)
    grid = [(position + offset) // size for position in range(length)]
    assert chunks.index(np.arange(length)).tolist() == grid
    assert holders(chunks) == grid
    assert chunks.count == len(set(grid))
    assert int(chunks.start(chunks.count)) == length


@given(st.lists(st.integers(0, 9), max_size=12))
def test_irregular_borders_are_those_of_the_sizes(sizes):
    chunks = Chunks.irregular(sizes)
    kept = [n for n in sizes if n]
    expected = [k for k, n in enumerate(kept) for _ in range(n)]
    assert (chunks.length, chunks.count) == (sum(sizes), len(kept))
    assert chunks.index(np.arange(sum(sizes))).tolist() == expected
    assert holders(chunks) == expected
    assert np.diff(chunks.start(np.arange(chunks.count + 1))).tolist() == kept


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_equal_borders_are_equal_objects(length, size, data):
    offset = data.draw(st.integers(0, size - 1))
    regular = Chunks.regular(length, size, offset)
    sizes = np.diff(regular.start(np.arange(regular.count + 1)))
    irregular = Chunks.irregular(sizes.tolist())
    assert regular == irregular
    assert hash(regular) == hash(irregular)
    assert irregular.size is not None


def test_different_borders_differ():
    assert Chunks.regular(100, 36) != Chunks.regular(100, 36, 1)
    assert Chunks.irregular([24, 24, 7]) == Chunks.regular(55, 24)
    assert Chunks.irregular([24, 7, 24]) != Chunks.irregular([24, 24, 7])
    assert Chunks.irregular([24, 7, 24]).size is None
    assert Chunks.regular(10, 5) != "Chunks"


def test_shapes_are_kept():
    for chunks in (Chunks.regular(12, 5), Chunks.irregular([3, 2, 4, 3])):
        where = np.arange(12).reshape(3, 4)
        assert chunks.index(where).shape == (3, 4)
        assert chunks.start(chunks.index(where)).shape == (3, 4)
        assert chunks.index(np.int64(3)).shape == ()


def test_two_million_chunks_cost_what_two_cost():
    start = time.perf_counter()
    chunks = Chunks.regular(2_000_000 * 36, 36, 5)
    assert chunks.count == 2_000_001
    assert int(chunks.index(np.array(72_000_000 - 1))) == 2_000_000
    copy = pickle.loads(pickle.dumps(chunks))
    assert copy == chunks
    assert hash(copy) == hash(chunks)
    assert len(pickle.dumps(chunks)) < 300
    assert time.perf_counter() - start < 0.1


def test_irregular_chunks_pickle():
    chunks = Chunks.irregular([3, 1, 4, 1, 5])
    assert pickle.loads(pickle.dumps(chunks)) == chunks


@pytest.mark.parametrize("wrong", [(10, 0, 0), (-1, 5, 0), (10, 5, 5), (10, 5, -1)])
def test_impossible_grids_are_refused(wrong):
    with pytest.raises(ValueError, match="offset < size"):
        Chunks.regular(*wrong)


def test_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="-3"):
        Chunks.irregular([4, -3])


def test_repr_says_how_it_was_cut():
    assert repr(Chunks.regular(10, 5, 2)) == "Chunks.regular(10, 5, offset=2)"
    assert repr(Chunks.irregular([3, 1, 4, 1, 5])) == "Chunks.irregular([3, 1, 4, 1, ...], count=5)"
