"""SuperbatchDataset as a training loop sees it, with real loaders."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import DataLoader

import superbatch as sb
from superbatch.errors import ArgumentError
from tests import processes
from tests.fields import corners, field, write_plain

WHOLE = field((240, 6))
WIDTH = 5


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """60 chunks of 4 along time, read whole along x."""
    path = tmp_path_factory.mktemp("dataset") / "field.zarr"
    return write_plain(path, WHOLE, chunks=(4, 6), dimension_names=("time", "x"))


@pytest.fixture
def source(stored):
    def make(**options):
        options = {"samples": 64, "sequences": 8} | options
        return sb.ArchiveSource({"field": sb.Window(stored, time=WIDTH)}, **options)

    return make


@pytest.fixture
def dataset(source):
    """Makes datasets and closes them."""
    made = []

    def make(src=None, batch_size=8, **options):
        src = source() if src is None else src
        made.append(sb.SuperbatchDataset(src, batch_size, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def starts(batch) -> list[int]:
    return corners(batch["field"], WHOLE)[:, 0].tolist()


def order(batches) -> npt.NDArray[np.int64]:
    """Every start of an iteration, in the order served."""
    return np.concatenate([starts(batch) for batch in batches])


# -- iterating ----------------------------------------------------------------------------------


def test_each_iteration_is_an_epoch_and_each_repeats(dataset):
    one = dataset(batches_per_epoch=20, replays=2, seed=3)
    first, second = order(one), order(one)
    assert len(first) == len(second) == 160
    assert first.tolist() != second.tolist()
    one.set_epoch(0)
    again = order(one)
    np.testing.assert_array_equal(first, again)
    # After an epoch that was asked for, the next one follows.
    np.testing.assert_array_equal(second, order(one))
    other = dataset(batches_per_epoch=20, replays=2, seed=4)
    assert order(other).tolist() != first.tolist()


def test_a_break_goes_on_with_the_next_epoch_and_gives_the_slot_back(dataset):
    one = dataset(batches_per_epoch=20, replays=1, timeout=20)
    epochs = [order(one) for _ in range(4)]
    one.set_epoch(0)
    for expected in epochs:
        for number, batch in enumerate(one):
            assert starts(batch) == expected[8 * number : 8 * number + 8].tolist()
            if number == 3:
                break


def test_breaking_again_and_again_never_waits_for_what_was_given_up(dataset):
    # Superbatches that are being made when they are given up come back later, and once more when the
    # same epoch is asked for: neither may be lost, or be taken for the other.
    one = dataset(loaders=2, batches_per_epoch=200, replays=1, timeout=20)
    expected = order(itertools.islice(one, 30)).reshape(-1, 8).tolist()
    for turn in range(30):
        one.set_epoch(0)
        last = turn * 7 % 29
        for number, batch in enumerate(one):
            assert starts(batch) == expected[number]
            if number == last:
                break


def test_iterators_that_are_kept_do_not_keep_their_slots(dataset):
    one = dataset(batches_per_epoch=20, replays=1, timeout=20)
    kept = []
    for _ in range(5):
        kept.append(iter(one))
        assert len(starts(next(kept[-1]))) == 8
    with pytest.raises(sb.SuperbatchError, match="ended by another iter"):
        next(kept[0])
    # The latest one is not disturbed when the others go.
    expected = order(kept[-1])
    kept.clear()
    one.set_epoch(4)
    np.testing.assert_array_equal(order(one)[8:], expected)


def test_an_iterator_that_no_batch_is_taken_from_uses_no_epoch_up(dataset):
    one = dataset(batches_per_epoch=5, replays=1)
    expected = order(one)
    one.set_epoch(0)
    for _ in range(3):
        iter(one)
    np.testing.assert_array_equal(order(one), expected)


def test_set_epoch_ends_an_iteration_with_an_error_but_not_after_its_last_batch(dataset):
    one = dataset(batches_per_epoch=5, replays=1)
    running = iter(one)
    next(running)
    one.set_epoch(7)
    with pytest.raises(sb.SuperbatchError, match="set_epoch"):
        next(running)
    one.set_epoch(0)
    for number, _ in enumerate(one, start=1):
        if number == 5:
            one.set_epoch(1)
    second = order(one)
    one.set_epoch(1)
    np.testing.assert_array_equal(order(one), second)
