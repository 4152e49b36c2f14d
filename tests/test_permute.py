"""Permutations that store nothing, against the definition of a permutation."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.permute import permute, scrambled
from tests.brute import chi_square

keys = st.integers(0, 2**64 - 1)


@given(st.integers(1, 700), keys)
def test_every_index_goes_to_a_place_of_its_own(size: int, key: int) -> None:
    assert sorted(permute(np.arange(size), size, key).tolist()) == list(range(size))


@given(st.lists(st.tuples(st.integers(1, 40), keys), min_size=1, max_size=6))
def test_many_permutations_at_once_are_those_one_by_one(given_) -> None:
    index = np.concatenate([np.arange(size) for size, _ in given_])
    sizes = np.repeat([size for size, _ in given_], [size for size, _ in given_])
    which = np.repeat(np.array([k for _, k in given_], np.uint64), [size for size, _ in given_])
    one_by_one = [permute(np.arange(size), size, key) for size, key in given_]
    assert permute(index, sizes, which).tolist() == np.concatenate(one_by_one).tolist()


@given(st.integers(1, 2**62), keys, st.data())
def test_huge_permutations_stay_in_range_and_apart(size: int, key: int, data) -> None:
    index = data.draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1, max_size=50))
    out = permute(np.array(index), size, key)
    assert len(set(out.tolist())) == len(index)
    assert out.min() >= 0
    assert out.max() < size


@pytest.mark.parametrize("size", [2**53 - 1, 2**53, 2**53 + 1, 2**62 - 1, 2**62])
def test_the_last_index_of_a_huge_permutation(size: int) -> None:
    out = permute(np.array([0, size - 2, size - 1]), size, 3)
    assert len(set(out.tolist())) == 3
    assert out.max() < size


@pytest.mark.parametrize("size", [2, 3, 5, 16, 17, 100])
@pytest.mark.parametrize("place", ["first", "last"])
def test_an_index_is_as_likely_in_any_place(size: int, place: str) -> None:
    rng = np.random.default_rng(size)
    index = 0 if place == "first" else size - 1
    many = rng.integers(0, 2**64, 100 * size, dtype=np.uint64)
    out = permute(np.full(len(many), index), size, many)
    assert abs(chi_square(np.bincount(out, minlength=size), np.full(size, 100.0))) < 4


def test_all_orders_of_three_are_equally_likely() -> None:
    many = np.random.default_rng(0).integers(0, 2**64, 6000, dtype=np.uint64)
    orders = np.stack([permute(np.full(6000, i), 3, many) for i in range(3)], axis=1)
    found = Counter(map(tuple, orders.tolist()))
    expected = list(itertools.permutations(range(3)))
    assert abs(chi_square([found[order] for order in expected], [1000.0] * 6)) < 4


def test_neighbours_do_not_stay_neighbours() -> None:
    # The distance between the places of neighbouring indices is that of two places drawn at random.
    out = permute(np.arange(100_000), 100_000, 11)
    assert abs(np.abs(np.diff(out)).mean() / (100_000 / 3) - 1) < 0.02
    assert abs(np.corrcoef(out[1:], out[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(out, np.arange(100_000))[0, 1]) < 0.02


@given(st.integers(0, 20), st.integers(0, 8), st.integers(0, 2**64 - 1))
def test_scrambled_terms_fill_the_range_evenly(block: int, power: int, key: int) -> None:
    count = 2**power
    terms = scrambled(np.arange(block * count, (block + 1) * count), key)
    assert terms.max() < 2**32
    assert sorted((terms >> np.uint64(32 - power)).tolist()) == list(range(count))


@pytest.mark.parametrize("index", [0, 1, 6, 1_000_003])
def test_a_scrambled_term_alone_is_uniform(index: int) -> None:
    rng = np.random.default_rng(index)
    many = [int(scrambled(np.array([index]), int(k))[0] >> 28) for k in rng.integers(0, 2**63, 800)]
    assert abs(chi_square(np.bincount(many, minlength=16), np.full(16, 50.0))) < 4
