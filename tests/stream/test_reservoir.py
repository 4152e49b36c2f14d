"""The reservoir against obvious models, without a server."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import superbatch as sb
from superbatch.stream.reservoir import Pool, Reservoir

STEPS = st.lists(st.tuples(st.sampled_from(["insert", "draw"]), st.integers(1, 7)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(capacity=st.integers(1, 12), steps=STEPS, seed=st.integers(0, 99))
def test_every_item_is_drawn_before_it_is_thrown_out(capacity, steps, seed):
    rng = np.random.default_rng(seed)
    pool, held, drawn, item = Pool(capacity), {}, collections.Counter(), 0
    for what, count in steps:
        if what == "insert":
            if count > pool.room:
                with pytest.raises(ValueError, match="room"):
                    pool.insert(count, rng)
                continue
            places = pool.insert(count, rng)
            assert len(set(places)) == count
            for place in places:
                if place in held:  # who is thrown out was seen
                    assert drawn[held[place]] > 0
                held[place] = item
                item += 1
        else:
            places = pool.draw(count, rng)
            assert len(places) == len(set(places)) == min(count, len(held))
            drawn.update(held[place] for place in places)
        assert len(pool) == len(held) <= capacity
        assert {*pool.seen, *pool.unseen} == held.keys()
        assert {held[p] for p in pool.unseen} == {i for i in held.values() if not drawn[i]}
    # Drained: everything once more, each once, and nothing that came in was never seen.
    rest = []
    while len(pool):
        rest += [held[place] for place in pool.draw(3, rng, remove=True)]
    assert sorted(rest) == sorted(held.values())
    assert set(range(item)) == drawn.keys() | set(rest)
    assert pool.room == capacity


def test_draws_are_uniform_over_seen_and_unseen():
    rng = np.random.default_rng(3)
    counts = np.zeros(20)
    pool = Pool(20)
    pool.insert(20, rng)
    rounds = 4000
    for _ in range(rounds):
        counts[pool.draw(5, rng)] += 1
    # Hypergeometric: each place in a quarter of the draws; 5 standard deviations.
    expected, deviation = rounds / 4, np.sqrt(rounds * 0.25 * 0.75)
    assert abs(counts - expected).max() < 5 * deviation


def test_the_age_of_what_is_drawn_follows_the_model():
    """What is held for long is geometric in age: one in, one random seen one out."""
    rng = np.random.default_rng(4)
    capacity, batch = 50, 10
    pool, born, ages = Pool(capacity), np.zeros(capacity, int), []
    for step in range(6000):
        for place in pool.insert(1, rng):
            born[place] = step
        places = pool.draw(batch, rng)
        if step > 500:
            ages.append(step - born[places])
    # Seen ones are all but few, so that one leaves with probability 1 / (capacity - unseen) a step.
    model_rng, model, drawn = np.random.default_rng(5), [], []
    seen: dict[int, bool] = {}
    for step in range(6000):  # an obvious model: a list of ages, and whether each was seen
        if len(model) == capacity:
            candidates = [b for b in model if seen[b]]
            model.remove(candidates[model_rng.integers(len(candidates))])
        model.append(step)
        seen[step] = False
        picked = [model[i] for i in model_rng.permutation(len(model))[:batch]]
        for b in picked:
            seen[b] = True
        if step > 500:
            drawn.append(step - np.array(picked))
    mean, expected = np.mean(ages), np.mean(drawn)
    assert abs(mean - expected) < 0.05 * expected
    # A queue would serve the latest alone: mean age of about half the batch.
    assert mean > 0.8 * capacity


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity=0"),
        ({"capacity": 5, "watermark": 6}, "watermark=6 is more than capacity=5"),
        ({"capacity": 5, "ratio": 0.5}, "ratio=0.5"),
        ({"capacity": 5, "ratio": True}, "ratio=True"),
        ({"capacity": 5, "superbatch": 0}, "superbatch=0"),
    ],
)
def test_arguments_that_cannot_work(arguments, message):
    with pytest.raises(sb.SuperbatchError, match=message):
        Reservoir(**arguments)
