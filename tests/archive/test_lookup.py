"""Tables from anchors to positions, and what of an array a sequence needs, against loops."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.lookup import Lookup, Points


@given(st.integers(0, 50), st.booleans(), st.booleans())
def test_ranges_are_those_of_all_anchors_in_a_sequence(seed, turned, plain) -> None:
    rng = np.random.default_rng(seed)
    lengths = (13, 9)
    if plain:
        lookup = Lookup((1,))
    elif turned:
        lookup = Lookup((0, 1), rng.integers(0, 40, lengths).astype("i4"))
    else:
        lookup = Lookup((1,), rng.integers(0, 40, lengths[1]).astype("i4"))
    first = np.stack([rng.integers(0, n, 6) for n in lengths])
    last = np.stack([rng.integers(f, n) for f, n in zip(first, lengths, strict=True)])
    low, high = lookup.range([(f, t) for f, t in zip(first, last, strict=True)])
    for k in range(6):
        box = [range(f, t + 1) for f, t in zip(first[:, k], last[:, k], strict=True)]
        anchors = np.array(list(itertools.product(*box)))
        found = lookup.at(anchors)
        assert found.dtype == np.int64
        assert (found.min(), found.max()) == (low[k], high[k])


def test_points_need_the_runs_and_steps_of_every_delay() -> None:
    rng = np.random.default_rng(1)
    run, step = rng.integers(0, 30, (2, 3, 20, 4)).astype("i4")
    points = Points(0, 1, 2, run, step, np.array([0.1, 0.4]))
    first, last = np.array([0, 5, 19]), np.array([3, 5, 19])
    for table in (run, step):
        low, high = points.range([(first, last)], table)
        for k in range(3):
            used = table[:, first[k] : last[k] + 1]
            assert (used.min(), used.max()) == (low[k], high[k])


def test_noise_of_two_modalities_is_independent() -> None:
    noise = np.random.default_rng(2).random(40_000)
    run = np.zeros((2, 1, 1), "i4")
    late = [Points(0, 0, 1, run, run, np.array([0.5]), key=k).variants(noise) for k in (1, 2)]
    both = np.bincount(2 * late[0] + late[1], minlength=4) / len(noise)
    assert np.allclose(both, 0.25, atol=0.01)
