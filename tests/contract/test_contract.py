"""What every source has to do over every transport, whatever is behind it."""

from __future__ import annotations

import itertools
import os
import signal

import pytest
import torch

import superbatch as sb
from superbatch.errors import LoaderDied
from tests.contract.sources import BATCH, SAMPLES, SOURCES, TRANSPORTS
from tests.processes import all_gone

EPOCH = 20  # batches


@pytest.fixture(scope="module", params=SOURCES, ids=str)
def case(request):
    return request.param


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("contract")


@pytest.fixture(scope="module")
def make(case, transport, folder):
    """Makes datasets and closes them."""
    made = []

    def make(transform=None, **options):
        options = {"batches_per_epoch": EPOCH, "replays": 2, "timeout": 60} | options
        source = case.make(folder, transform)
        made.append(sb.SuperbatchDataset(source, BATCH, transport=transport, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def shared(case, make):
    """One dataset that most tests use in turn."""
    return make(seed=5, loaders=case.loaders)


def begins_anew(case):
    """Some promises are about having an epoch again."""
    if case.continues:
        pytest.skip("its epochs go on where the one before ended")


def test_samples_are_whole_and_passes_are_permutations(case, shared):
    shared.set_epoch(0)
    batches = list(shared)
    assert len(batches) == len(shared) == EPOCH
    assert all(len(value) == BATCH for batch in batches for value in batch.values())
    served = list(itertools.chain.from_iterable(map(case.identify, batches)))
    for begin in range(0, 2 * SAMPLES, 2 * SAMPLES):
        fresh, again = (
            served[begin : begin + SAMPLES],
            served[begin + SAMPLES : begin + 2 * SAMPLES],
        )
        assert sorted(fresh) == sorted(again)
        assert fresh != again


def test_batches_that_are_kept_do_not_change(shared):
    shared.set_epoch(1)
    kept, copies = [], []
    for batch in shared:
        kept.append(batch)
        copies.append({name: value.clone() for name, value in batch.items()})
    for batch, copy in zip(kept, copies, strict=True):
        assert all(torch.equal(batch[name], copy[name]) for name in copy)
        assert all(value.is_contiguous() for value in batch.values())


def test_epochs_repeat_and_differ(case, shared):
    begins_anew(case)
    served = []
    for epoch in (3, 4, 3):
        shared.set_epoch(epoch)
        served.append([case.identify(batch) for batch in shared])
    assert served[0] == served[2]
    assert served[0] != served[1]


def test_a_break_costs_nothing_and_loses_nothing(case, shared):
    begins_anew(case)
    shared.set_epoch(6)
    expected = [case.identify(batch) for batch in shared]
    for stop in (1, 5, 2, 9, 1, 1):
        shared.set_epoch(6)
        batches = itertools.islice(shared, stop)
        assert [case.identify(batch) for batch in batches] == expected[:stop]


def test_a_state_resumes(case, shared):
    begins_anew(case)
    shared.set_epoch(8)
    expected = [case.identify(batch) for batch in shared]
    shared.set_epoch(8)
    batches = iter(shared)
    for _ in range(7):
        next(batches)
    state = shared.state_dict()
    shared.set_epoch(2)
    next(iter(shared))
    shared.load_state_dict(state)
    assert [case.identify(batch) for batch in shared] == expected[7:]


def test_an_epoch_that_ends_serves_everything_once(case, make):
    if case.epoch is None:
        pytest.skip("its epochs do not end")
    one = make(batches_per_epoch=None, replays=1)
    served = list(itertools.chain.from_iterable(map(case.identify, one)))
    assert len(served) == len(set(served)) == case.epoch
    assert one.stats().fresh == case.epoch


def test_counts_add_up(case, shared):
    begins_anew(case)
    before = shared.stats()
    shared.set_epoch(9)
    assert len(list(shared)) == EPOCH
    after = shared.stats()
    assert after.iterations - before.iterations == EPOCH
    # Two passes over two superbatches of four batches, and four batches of a third.
    assert after.fresh - before.fresh == 3 * SAMPLES
    assert after.replayed - before.replayed == 2 * SAMPLES
    assert {kind for kind, _, _ in after.timeline} == {"load", "serve", "stall"}


def test_an_error_in_a_loader_arrives_as_it_was(case, make):
    if case.continues:
        pytest.skip("it takes no transform")

    def transform(sample):
        if float(next(iter(sample.values())).flat[0]) > 100:
            raise LookupError("station 7 is missing")
        return sample

    with pytest.raises(LookupError, match="station 7 is missing") as caught:
        list(make(transform=transform))
    assert any("anchor" in note for note in caught.value.__notes__)


def test_a_stream_goes_on_after_a_break_a_state_and_a_killed_loader(case, make):
    if not case.continues:
        pytest.skip("its epochs begin anew")
    whole = {"batches_per_epoch": None, "seed": 5}
    expected = [case.identify(batch) for batch in make(**whole)]
    assert len(expected) == 2 * case.epoch // BATCH
    one = make(restarts=1, **whole)
    served = [case.identify(batch) for batch in itertools.islice(one, 3)]
    served += [case.identify(batch) for batch in itertools.islice(one, 10)]
    os.kill(one._loaders.pids[0], signal.SIGKILL)
    served += [case.identify(batch) for batch in itertools.islice(one, 12)]
    assert one.stats().restarts == 1
    other = make(**whole)
    other.load_state_dict(one.state_dict())
    served += [case.identify(batch) for batch in other]
    assert served == expected


def test_a_killed_loader_is_replaced_and_makes_the_same(case, shared, make):
    begins_anew(case)
    shared.set_epoch(0)
    expected = [case.identify(batch) for batch in shared]
    one = make(seed=5, restarts=1)
    batches = iter(one)  # the loader starts
    killed = one._loaders.pids
    os.kill(killed[0], signal.SIGKILL)
    assert [case.identify(batch) for batch in batches] == expected
    assert one.stats().restarts == 1
    pids = one._loaders.pids
    assert pids != killed
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(LoaderDied, match="SIGKILL"):
        list(itertools.islice(itertools.chain.from_iterable(itertools.repeat(one)), 1000))
    assert all_gone(killed + pids, 2)


def test_closing_leaves_no_process(case, shared):
    # The last test of the shared dataset.
    next(iter(shared))
    pids = shared._loaders.pids
    assert len(pids) == case.loaders
    shared.close()
    shared.close()
    assert all_gone(pids, 0.5)
    with pytest.raises(sb.SuperbatchError, match="closed"):
        iter(shared)
