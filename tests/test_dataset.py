"""SuperbatchDataset as a training loop sees it, with real loaders."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import time
import urllib.request

import numpy as np
import numpy.typing as npt
import pytest
import torch
import xarray as xr
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


# -- determinism --------------------------------------------------------------------------------


def test_deterministic_runs_repeat_on_any_number_of_loaders_and_threads(dataset, source):
    def run(**options):
        made = source(turnover=0.5)
        one = dataset(made, deterministic=True, replays=(2, 4), seed=5, **options)
        batches = [order(itertools.islice(one, 50))]  # superbatches of 8 batches, two passes each
        one.set_epoch(3)
        return [*batches, order(itertools.islice(one, 20))]

    first = run(loaders=1, threads=2)
    assert len(set(first[0].tolist())) > 50
    for options in ({"loaders": 1, "threads": 2}, {"loaders": 3, "threads": 1}):
        again = run(**options)
        np.testing.assert_array_equal(first[0], again[0])
        np.testing.assert_array_equal(first[1], again[1])


def test_several_loaders_of_one_seed_draw_different_samples(dataset):
    # Superbatches in turn come from different loaders: each has places of its own.
    one = dataset(loaders=4, replays=1, seed=0)
    superbatches = order(itertools.islice(one, 64)).reshape(8, 64)
    distinct = {tuple(each) for each in superbatches.tolist()}
    assert len(distinct) == 8
    # Random draws of 64 out of 236 have about a quarter in common with any others; copies have all.
    for a, b in itertools.combinations(superbatches, 2):
        assert len(set(a.tolist()) & set(b.tolist())) < 40


def test_without_shuffle_everything_comes_in_its_natural_order(dataset, source):
    one = dataset(source(coverage="once"), shuffle=False, replays=2)
    served = order(one)
    # Passes are over superbatches, the first of which may be smaller.
    at, sizes = 0, [64, 64, 64, 44]
    for size in sizes:
        for _ in range(2):
            begin = sizes.index(size) if size != 64 else None
            natural = served[at : at + size]
            assert (np.diff(natural) == 1).all(), (begin, natural)
            at += size
    assert at == len(served) == 2 * 236


# -- serving ------------------------------------------------------------------------------------


def test_every_window_once_an_epoch_and_replays_shuffle_the_same_samples(dataset, source):
    one = dataset(source(coverage="once"), replays=2, seed=1)
    assert len(one) == 60  # 30 fresh batches of 8, the last of 4
    batches = list(one)
    assert len(batches) == 60
    assert [len(batch["field"]) for batch in batches].count(4) == 2
    served = order(batches)
    assert sorted(served.tolist()) == sorted(2 * list(range(236)))
    # Superbatch by superbatch: a pass, and the same samples again in another order.
    at = 0
    for size in (64, 64, 64, 44):
        fresh, replayed = served[at : at + size], served[at + size : at + 2 * size]
        assert sorted(fresh.tolist()) == sorted(replayed.tolist())
        assert fresh.tolist() != replayed.tolist()
        assert (np.diff(fresh) == 1).mean() < 0.2
        at += 2 * size
    stats = one.stats()
    assert (stats.fresh, stats.replayed, stats.iterations) == (236, 236, 60)
    assert (stats.superbatches, stats.passes) == (4, 8)
    assert stats.replay_ratio == 1.0


def test_the_counts_and_the_time_line_fit_together(dataset):
    one = dataset(replays=3)
    batches = list(itertools.islice(one, 60))
    stats = one.stats()
    assert stats.iterations == len(batches) == 60
    assert stats.fresh + stats.replayed == sum(len(batch["field"]) for batch in batches)
    assert stats.fresh == 8 * 24  # passes 0 of superbatches 0, 1 and the first four batches of 2
    assert stats.sequences > 0
    assert stats.loaded_blocks > 0
    assert stats.decoded_bytes >= WHOLE.itemsize * 4 * 6 * 8
    events = stats.timeline
    assert {kind for kind, _, _ in events} == {"load", "serve", "stall"}
    assert all(begin <= end for _, begin, end in events)
    stalls = sum(end - begin for kind, begin, end in events if kind == "stall")
    assert stalls == pytest.approx(stats.stall_seconds, abs=1e-6)
    # One loader: while it begins a superbatch it may still be at the one before, which counts once.
    loads = [(begin, end) for kind, begin, end in events if kind == "load"]
    assert loads == sorted(loads)
    busy, until = 0.0, -np.inf
    for begin, end in loads:
        busy, until = busy + end - max(begin, until), end
    assert busy == pytest.approx(stats.load_seconds, abs=1e-6)
    serves = [(begin, end) for kind, begin, end in events if kind == "serve"]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(serves))
    assert stats.stall_seconds <= stats.elapsed_seconds
    assert 0 <= stats.stall_fraction <= 1
    assert 0 < stats.first_batch_seconds <= stats.stall_seconds
    numbers = stats.as_dict()
    assert numbers["fresh"] == stats.fresh
    assert all(isinstance(value, (int, float)) for value in numbers.values())
    before = one.stats()
    next(iter(one))
    assert before.iterations == 60  # a snapshot does not change


def test_rates_are_right_in_the_middle_of_an_epoch_too(dataset):
    """Training logs them while it goes on, and an epoch of random windows never ends."""
    one = dataset(replays=(1, 2))
    began = time.perf_counter()
    batches = iter(one)
    previous = 0.0
    for number in range(1, 40):
        next(batches)
        stats, elapsed = one.stats(), time.perf_counter() - began
        assert previous < stats.elapsed_seconds <= elapsed
        assert stats.elapsed_seconds > 0.5 * elapsed  # until now, and not until the last pass
        assert stats.iterations_per_second == pytest.approx(number / stats.elapsed_seconds)
        previous = stats.elapsed_seconds
    batches.close()
    after = one.stats().elapsed_seconds
    assert one.stats().elapsed_seconds == after  # between iterations the clock stands still


def test_a_range_of_replays_waits_for_the_next_superbatch_within_its_bounds(dataset, source):
    def slowly(sample):
        import time

        time.sleep(0.002)
        return sample

    one = dataset(source(transform=slowly), replays=(1, 50), seed=2)
    served = order(itertools.islice(one, 1200)).reshape(-1, 64)
    passes, before = [0], None
    for each in served:
        same = before is not None and sorted(each.tolist()) == before
        passes = [*passes[:-1], passes[-1] + 1] if same or before is None else [*passes, 1]
        before = sorted(each.tolist())
    # Loading takes 64 times 2 ms, a pass takes next to nothing: it is replayed to the limit or near.
    assert max(passes) <= 50
    assert max(passes) > 4
    most = dataset(source(transform=slowly), replays=(2, 3), seed=2)
    list(itertools.islice(most, 80))
    stats = most.stats()
    assert 2 * stats.superbatches <= stats.passes <= 3 * stats.superbatches + 1


def test_batches_that_are_kept_do_not_change_and_belong_to_the_user(dataset):
    one = dataset(batches_per_epoch=60, replays=2)
    kept, copies = [], []
    for batch in one:
        kept.append(batch)
        copies.append(batch["field"].clone())
    for batch, copy in zip(kept, copies, strict=True):
        assert torch.equal(batch["field"], copy)
        assert batch["field"].is_contiguous()
    kept[0][
        "field"
    ].zero_()  # nor do they share memory with each other, or with what is served next
    assert torch.equal(kept[1]["field"], copies[1])
    one.set_epoch(0)
    assert torch.equal(next(iter(one))["field"], copies[0])
    one.close()
    assert torch.equal(kept[-1]["field"], copies[-1])


def test_a_device_serves_the_same_batches(dataset):
    plain, moved = (
        dataset(batches_per_epoch=40, replays=2, seed=9, device=device) for device in (None, "cpu")
    )
    assert order(plain).tolist() == order(moved).tolist()
    batch = next(iter(moved))
    assert batch["field"].device.type == "cpu"


def test_a_data_loader_around_it_gives_the_same_batches(dataset):
    one = dataset(batches_per_epoch=12, replays=2)
    loader = DataLoader(one, batch_size=None, num_workers=0)
    assert len(loader) == len(one) == 12
    wrapped = order(loader)
    one.set_epoch(0)
    np.testing.assert_array_equal(wrapped, order(one))


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_data_loader_are_refused_in_one_sentence(dataset, context):
    one = dataset(batches_per_epoch=12)
    next(iter(one))
    loader = DataLoader(one, batch_size=None, num_workers=2, multiprocessing_context=context)
    with pytest.raises(sb.SuperbatchError, match=r"batch_size=None, num_workers=0"):
        next(iter(loader))
    for worker in multiprocessing.active_children():  # PyTorch waits five seconds for each
        worker.terminate()
    # The fork has not taken the loaders of the parent down with it.
    assert len(starts(next(iter(one)))) == 8


def test_turnover_serves_right_values_from_fewer_reads(dataset, source):
    loaded = {}
    for turnover in (0.25, 1.0):
        one = dataset(source(turnover=turnover, sequences=8), replays=1, seed=0)
        served = order(itertools.islice(one, 240))
        loaded[turnover] = one.stats().loaded_blocks
        assert len(set(served.tolist())) > 200
    assert loaded[0.25] < 0.4 * loaded[1.0]


@pytest.mark.parametrize("coverage", ["random", "once"])
def test_an_archive_that_fits_is_read_once(dataset, source, coverage):
    """20 sequences of three chunks and the 19 borders between them, and room for 64."""
    one = dataset(source(sequences=64, coverage=coverage), loaders=1, replays=1, seed=0)
    epochs = itertools.chain(one, one, one) if coverage == "once" else itertools.islice(one, 160)
    served = order(epochs)
    assert one.stats().superbatches >= 10
    assert one.stats().loaded_blocks <= 20 + 19
    if coverage == "once":
        assert (np.bincount(served) == 3).all()


def test_fewer_windows_than_a_batch_or_than_loaders_work(dataset, stored):
    few = sb.ArchiveSource(
        {"field": sb.Window(stored, time=WIDTH)},
        samples=64,
        coverage="once",
        valid=np.arange(240) < 5,  # anchors are the middle of a window
    )
    one = dataset(few, 32, loaders=5, replays=1)
    assert len(one) == 1
    assert [sorted(starts(batch)) for batch in one] == [[0, 1, 2]]
    endless = sb.ArchiveSource(
        {"field": sb.Window(stored, time=WIDTH)}, samples=64, valid=np.arange(240) < 5
    )
    many = dataset(endless, 32, replays=1)
    assert set(order(itertools.islice(many, 6)).tolist()) == {0, 1, 2}


def test_progress_is_one_line(dataset, capsys):
    one = dataset(batches_per_epoch=30, progress=True)
    for _ in one:
        pass
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    last = shown.rstrip().rpartition("\r")[2]
    assert last.startswith("epoch 0: 100%")
    assert "30/30" in last
    for word in ("fresh/s", "stall", "replays"):
        assert word in last
    filled, slots = last.rpartition("superbatches filled ")[2].rstrip("]").split("/")
    assert 0 <= int(filled) <= int(slots) == 1


def test_the_dashboard_of_a_cluster_that_has_one_is_shown(dataset, capsys):
    def connect():
        from distributed import Client, LocalCluster

        options = {"n_workers": 1, "processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
        cluster = LocalCluster(**options, dashboard_address="127.0.0.1:0")
        return Client(cluster, set_as_default=False)

    one = dataset(batches_per_epoch=30, progress=True, dask=connect)
    batches = iter(one)
    next(batches)
    link = one.stats().dashboard
    with urllib.request.urlopen(link, timeout=20) as page:
        assert page.status == 200
    for _ in batches:
        pass
    assert f"Dask's dashboard: {link}" in capsys.readouterr().err
    assert link.startswith("http://127.0.0.1:")
    assert all(isinstance(value, (int, float)) for value in one.stats().as_dict().values())


# -- length -------------------------------------------------------------------------------------


def test_a_length_that_is_not_exact_is_refused_with_the_reason(dataset, source):
    assert len(dataset(batches_per_epoch=17)) == 17
    with pytest.raises(TypeError, match="epochs do not end: give batches_per_epoch"):
        len(dataset())
    once = dataset(source(coverage="once"), replays=(1, 3))
    with pytest.raises(TypeError, match=r"replays=\(1, 3\)"):
        len(once)
    assert sum(1 for _ in once) >= 30


def test_more_batches_an_epoch_than_there_are_say_so(dataset, source):
    one = dataset(source(coverage="once"), replays=1, batches_per_epoch=31)
    with pytest.raises(sb.SuperbatchError, match="ended after 30 batches"):
        list(one)


# -- the end ------------------------------------------------------------------------------------


def test_closing_is_final_idempotent_and_leaves_no_process(dataset):
    one = dataset(loaders=2)
    with one as entered:
        assert entered is one
        batches = iter(one)
        next(batches)
        pids = one._loaders.pids
        assert len(pids) == 2
        assert all(map(processes.alive, pids))
    assert processes.all_gone(pids, 2)
    one.close()
    with pytest.raises(sb.SuperbatchError, match="closed while it was iterated"):
        next(batches)
    with pytest.raises(sb.SuperbatchError, match="make a new one"):
        iter(one)


def test_a_dataset_that_is_forgotten_takes_its_loaders_and_memory_along(source):
    import os

    before = processes.shared_memory(os.getpid())
    one = sb.SuperbatchDataset(source(), 8)
    batches = iter(one)
    next(batches)
    pids = one._loaders.pids
    ours = processes.shared_memory(os.getpid()) - before
    assert len(ours) == 2  # two slots
    del one, batches
    gc.collect()
    assert processes.all_gone(pids, 2)
    assert not processes.holders(ours)


def test_two_datasets_are_iterated_in_turn(dataset, source):
    train = dataset(batches_per_epoch=30, replays=2, seed=1)
    held_out = dataset(source(coverage="once"), replays=1, seed=2)
    alone = order(train)
    train.set_epoch(0)
    for epoch in range(2):
        mixed = []
        validation = iter(held_out)
        for batch in train:
            mixed.append(batch)
            assert len(starts(next(validation))) in (8, 4)
        if epoch == 0:
            np.testing.assert_array_equal(order(mixed), alone)
        assert next(validation, None) is None


def test_a_dataset_cannot_be_copied_or_sent(dataset):
    import copy
    import pickle

    one = dataset()
    for send in (pickle.dumps, copy.deepcopy):
        with pytest.raises(sb.SuperbatchError, match="num_workers=0"):
            send(one)


# -- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch_size": 65}, r"batch_size=65 is larger than the superbatch of samples=64"),
        ({"batch_size": 0}, r"batch_size=0"),
        ({"batch_size": True}, r"batch_size=True"),
        ({"batch_size": None}, r"batch_size=None needs a stream"),
        ({"loaders": 0}, r"loaders=0"),
        ({"threads": 0}, r"threads=0"),
        ({"seed": -1}, r"seed=-1"),
        ({"restarts": -1}, r"restarts=-1"),
        ({"timeout": 0}, r"timeout=0"),
        ({"timeout": float("nan")}, r"timeout=nan"),
        ({"replays": 0}, r"replays=0"),
        ({"replays": (4, 1)}, r"replays=\(4, 1\)"),
        ({"replays": "often"}, r"replays='often'"),
        ({"batches_per_epoch": 0}, r"batches_per_epoch=0"),
        ({"transport": "pigeon"}, r"'pigeon'.*'shared', 'pipe'"),
        ({"rank": 2, "world_size": 2}, r"rank=2 is not one of world_size=2"),
        ({"rank": 1}, r"give both, or neither"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(source, options, sentence):
    options = {"batch_size": 8, **options}
    with pytest.raises(ArgumentError, match=sentence) as caught:
        sb.SuperbatchDataset(source(), **options)
    assert "\n" not in str(caught.value)


def test_what_is_no_source_and_no_cluster_is_refused(source):
    with pytest.raises(TypeError, match=r"write a source, such as sb.ArchiveSource"):
        sb.SuperbatchDataset(WHOLE, 8)
    with pytest.raises(TypeError, match="scheduler's address"):
        sb.SuperbatchDataset(source(), 8, dask=7)


@pytest.mark.parametrize("coverage", ["random", "once"])
def test_a_superbatch_without_a_sample_is_skipped_and_many_are_an_error(coverage):
    counted = xr.DataArray(np.arange(4000, dtype="i4"), dims="time")

    def source(reject):
        return sb.ArchiveSource(
            {"field": sb.Window(counted, time=1)},
            samples=20,
            sequences=1,
            coverage=coverage,
            reject=reject,
        )

    message = r"^no sample is left of \d+ superbatches in a row: reject turned down \d+;"
    with (
        sb.SuperbatchDataset(source(lambda s: True), 5, replays=1, timeout=60) as dataset,
        pytest.raises(sb.SuperbatchError, match=message),
    ):
        next(iter(dataset))
    if coverage == "once":  # unshuffled, two of three superbatches lose all of their samples
        some = source(lambda s: int(s["field"][0]) // 20 % 3 > 0)
        with sb.SuperbatchDataset(some, 5, replays=1, shuffle=False, timeout=60) as dataset:
            served = np.concatenate([batch["field"][:, 0] for batch in dataset])
        assert sorted(served.tolist()) == [n for n in range(4000) if n // 20 % 3 == 0]
