"""Random numbers are a function of coordinates, and of nothing else."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from superbatch import seeds

places = st.tuples(
    st.one_of(st.integers(0, 2**70), st.integers(0, 5)),
    st.sampled_from(seeds.PURPOSES),
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**31)), max_size=5).map(tuple),
)


def numbers(seed: int, purpose: str, coordinates: tuple[int, ...]) -> list[int]:
    return seeds.generator(seed, purpose, *coordinates).integers(2**63, size=4).tolist()


@given(places)
def test_the_same_place_gives_the_same_numbers(place) -> None:
    seed, purpose, coordinates = place
    before = numbers(*place), seeds.key(seed, purpose, *coordinates)
    # What is drawn elsewhere in between changes nothing.
    np.random.default_rng(0).random(10)
    numbers(1, "hits", (9, 9))
    assert (numbers(*place), seeds.key(seed, purpose, *coordinates)) == before


@given(places, places)
def test_different_places_give_different_numbers(one, other) -> None:
    if one != other:
        assert numbers(*one) != numbers(*other)
        assert seeds.key(one[0], one[1], *one[2]) != seeds.key(other[0], other[1], *other[2])


def test_no_place_of_a_run_is_the_place_of_another_seed() -> None:
    # A seed beyond 32 bits takes two words; they are not to be read as a seed and a purpose.
    for seed, purpose in itertools.product((0, 5, 2**31), range(1, 4)):
        large = seed + purpose * 2**32
        assert numbers(large, "hits", (3,)) != numbers(seed, seeds.PURPOSES[purpose], (0, 3))


def test_a_zero_more_is_another_place() -> None:
    found = {tuple(numbers(0, "visits", (0,) * count)) for count in range(5)}
    assert len(found) == 5


def test_keys_of_neighbouring_places_share_no_pattern() -> None:
    # Each of the 64 bits changes about half of the time from one place to the next.
    keys = np.array([seeds.key(0, "items", epoch) for epoch in range(2000)], dtype=np.uint64)
    changed = keys[1:] ^ keys[:-1]
    for bit in range(64):
        share = ((changed >> np.uint64(bit)) & np.uint64(1)).mean()
        assert abs(share - 0.5) < 0.06


def test_mix_is_splitmix64() -> None:
    # The first outputs of the published generator for seed 0.
    states = np.arange(1, 5, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert seeds.mix(states).tolist() == published


def test_mix_is_one_to_one_and_moves_half_of_the_bits() -> None:
    x = np.arange(50_000, dtype=np.uint64)
    assert len(np.unique(seeds.mix(x))) == len(x)
    for bit in range(64):
        flipped = seeds.mix(x) ^ seeds.mix(x ^ (np.uint64(1) << np.uint64(bit)))
        assert abs(np.bitwise_count(flipped).mean() - 32) < 0.3
