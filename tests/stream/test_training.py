"""A dataset on streams: what is served is what was put, each once, whole. A real server, real processes."""

from __future__ import annotations

import collections
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import superbatch as sb
from superbatch.stream import Reservoir, Rounds, StreamSource
from tests.processes import ROOT, script
from tests.stream.plain import Reader, client, identify, key, producer, put, put_all, running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture
def address(server):
    with client(server.address) as c:
        c.flushall()
    return server.address


def train_on(address, buffer=None, batch_size=None, *, source=None, **options):
    source = {"producers": "sim*", "timeout": 20, "connect": Reader} | (source or {})
    options = {"replays": 1, "timeout": 40} | options
    return sb.SuperbatchDataset(
        StreamSource(address, buffer=buffer, **source), batch_size, **options
    )


def flat(batches):
    return list(itertools.chain.from_iterable(map(identify, batches)))


def wait_for(*processes):
    for process in processes:
        assert process.wait(30) == 0


def test_rounds_serve_running_producers_in_order_each_batch_once(address):
    running_ = [producer(address, f"sim{n}", 10, pause=0.005) for n in range(2)]
    with train_on(address, Rounds(4), shuffle=False, source={"expect": 2}) as dataset:
        batches = [identify(batch) for batch in dataset]
        stats = dataset.stats()
    wait_for(*running_)
    for n in range(2):
        mine = [b for b in batches if b[0][0] == n]
        assert mine == [[(n, 0, number, s) for s in range(4)] for number in range(10)]
    assert len(batches) == 20
    assert stats.source["rounds"] == 5
    assert stats.source["batches"] == 20
    assert not any(stats.source[name] for name in ("gaps", "torn", "evicted", "skipped"))
    assert 0 < stats.staleness < 20


def test_rounds_are_trained_on_several_epochs_and_batches_stay_whole(address):
    put_all(address, ["sim0"], 7)
    with train_on(address, Rounds(3), replays=3) as dataset:
        batches = [identify(batch) for batch in dataset]
    orders = []
    at = 0
    for first, count in ((0, 3), (3, 3), (6, 1)):
        for _ in range(3):
            numbers = [batch[0][2] for batch in batches[at : at + count]]
            assert sorted(numbers) == list(range(first, first + count))
            orders.append(numbers)
            at += count
    assert at == len(batches)
    assert orders != [sorted(numbers) for numbers in orders]
    assert all([s for *_, s in batch] == [0, 1, 2, 3] for batch in batches)


def test_a_number_cuts_batches_anew(address):
    put_ = put_all(address, ["sim0", "sim1"], 5)
    with train_on(address, Rounds(4), 6) as dataset:
        batches = [identify(batch) for batch in dataset]
    assert [len(b) for b in batches] == [6, 6, 4, 6, 6, 4, 6, 2]
    assert sorted(itertools.chain(*batches)) == sorted(put_)
    assert any(len({row[:3] for row in b}) > 2 for b in batches)  # shuffled over the round


def test_epochs_are_cut_out_of_the_stream(address):
    put_ = put_all(address, ["sim0"], 10)
    with train_on(address, Rounds(4), shuffle=False, batches_per_epoch=3) as dataset:
        epochs = [flat(dataset) for _ in range(5)]
    assert [len(e) for e in epochs] == [12, 12, 12, 4, 0]
    assert list(itertools.chain(*epochs)) == put_


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_reservoir_serves_every_sample_and_waits_for_nothing_at_the_end(address, batch_size):
    running_ = [producer(address, f"sim{n}", 15, bounded=3) for n in range(2)]
    buffer = Reservoir(24, watermark=12, ratio=3)
    with train_on(address, buffer, batch_size, source={"expect": 2}) as dataset:
        counts = collections.Counter(flat(dataset))
    wait_for(*running_)
    assert counts.keys() == {(n, 0, b, s) for n in range(2) for b in range(15) for s in range(4)}
    # Three a sample, and once more what is held at the end.
    assert sum(counts.values()) <= 3 * 120 + 24 + 24


def test_a_range_of_replays_trains_until_the_next_round_is_there(address):
    with client(address) as c:
        put(c, "sim0", 0, 0, 4)
        with train_on(address, Rounds(1), replays=(1, 1000)) as dataset:
            batches = iter(dataset)
            seen = [identify(next(batches))[0][2] for _ in range(20)]
            assert seen == [0] * 20
            put(c, "sim0", 0, 1, 4)
            put(c, "sim0", 0, 2, 4, last=True)
            after = [identify(b)[0][2] for b in batches]
    assert set(after) <= {0, 1}
    assert after[-1] == 1


def test_latest_passes_over_the_old(address):
    with client(address) as c:
        for number in range(5):
            put(c, "sim0", 0, number, 4)
        with train_on(address, source={"latest": True}) as dataset:
            batches = iter(dataset)
            assert identify(next(batches))[0][2] == 4
            for number in (5, 6):
                put(c, "sim0", 0, number, 4)
            put(c, "sim0", 0, 7, 0, last=True)
            rest = [identify(b)[0][2] for b in batches]
            assert rest in ([6], [5, 6])
            assert dataset.stats().source["skipped"] == 6 - len(rest)


def test_what_is_gone_is_skipped_and_counted(address):
    with client(address) as c:
        for number in (0, 1, 4, 5, 6):
            put(c, "sim0", 0, number, 4)
        c.delete(key("sim0", "0", 5))
        put(c, "sim0", 0, 7, 0, last=True)
    with train_on(address, Rounds(2), shuffle=False) as dataset:
        assert [identify(b)[0][2] for b in dataset] == [0, 1, 4, 6]
        source = dataset.stats().source
    assert (source["gaps"], source["evicted"]) == (2, 1)


def test_what_is_put_twice_or_by_a_run_that_is_over_is_served_once(address):
    with client(address) as c:
        for run, number in ((0, 0), (0, 1), (0, 1), (1, 0), (0, 2), (1, 0), (1, 1)):
            put(c, "sim0", run, number, 4)
        put(c, "sim0", 1, 2, 0, last=True)
    with train_on(address, Rounds(2), shuffle=False) as dataset:
        served = [identify(b)[0][1:3] for b in dataset]
    assert served == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("buffer", "batch_size", "replays"),
    [
        (Rounds(4), None, 2),
        (Rounds(4), 3, 2),
        (Reservoir(24, 12, ratio=2, superbatch=12), 3, 1),
        (Reservoir(24, 12, ratio=2, superbatch=12), None, 1),
    ],
    ids=["rounds", "rounds cut anew", "reservoir", "reservoir of whole batches"],
)
def test_a_trainer_that_is_started_anew_goes_on_where_its_state_says(
    address, buffer, batch_size, replays
):
    put_all(address, ["sim0", "sim1"], 9)
    with train_on(address, buffer, batch_size, replays=replays) as dataset:
        expected = [identify(b) for b in dataset]
    for served in (0, 1, 9, 14, len(expected)):
        with train_on(address, buffer, batch_size, replays=replays) as dataset:
            batches = iter(dataset)
            first = [identify(next(batches)) for _ in range(served)]
            state = dataset.state_dict()
        with train_on(address, buffer, batch_size, replays=replays) as dataset:
            dataset.load_state_dict(state)
            assert first + [identify(b) for b in dataset] == expected, served


def test_a_state_is_gone_on_from_although_some_of_its_round_is_gone(address):
    put_all(address, ["sim0"], 8)
    with train_on(address, Rounds(4)) as dataset:
        expected = [identify(b)[0][2] for b in dataset]
    with train_on(address, Rounds(4)) as dataset:
        batches = iter(dataset)
        assert [identify(next(batches))[0][2] for _ in range(2)] == expected[:2]
        state = dataset.state_dict()
    with client(address) as c:
        c.delete(key("sim0", "0", expected[0]), key("sim0", "0", expected[2]))
    with train_on(address, Rounds(4)) as dataset:
        dataset.load_state_dict(state)
        assert [identify(b)[0][2] for b in dataset] == expected[3:]
        assert dataset.stats().source["evicted"] == 2
    with train_on(address, Rounds(4), 3) as dataset:  # cut anew, so that places shift
        state |= {"feed": dataset.state_dict()["feed"]}
        dataset.load_state_dict(state)
        with pytest.raises(sb.SuperbatchError, match="not on the server any more"):
            next(iter(dataset))


def test_a_killed_loader_is_replaced_and_nothing_is_served_twice(address):
    put_ = put_all(address, ["sim0"], 12)
    with train_on(address, Rounds(3), shuffle=False, restarts=1) as dataset:
        batches = iter(dataset)
        served = [*identify(next(batches)), *identify(next(batches))]
        os.kill(dataset._loaders.pids[0], signal.SIGKILL)
        served += flat(batches)
        assert dataset.stats().restarts == 1
    assert served == put_


def test_a_killed_producer_goes_on_with_its_numbers_or_in_a_new_run(address):
    first = producer(address, "sim0", 1000, pause=0.01)
    with train_on(address, Rounds(2), shuffle=False) as dataset:
        batches = iter(dataset)
        served = flat(next(batches) for _ in range(4))
        first.kill()
        first.wait()
        with client(address) as c:
            put_ = sorted(int(k.rpartition(b".")[2]) for k in c.keys("v.sim0.0.*"))
        again = producer(address, "sim0", 20 + len(put_), begin=len(put_), close=False)
        wait_for(again)
        new = producer(address, "sim0", 5, run=1)
        served += flat(batches)
        wait_for(new)
    runs = [(0, n) for n in range(20 + len(put_))] + [(1, n) for n in range(5)]
    assert served == [(0, run, n, s) for run, n in runs for s in range(4)]


def test_a_server_that_is_away_for_a_while_is_waited_for(tmp_path):
    with running(tmp_path) as one:
        with client(one.address) as c:
            for number in range(4):
                put(c, "sim0", 0, number, 4)
        with train_on(one.address, Rounds(2), shuffle=False) as dataset:
            batches = iter(dataset)
            served = flat(next(batches) for _ in range(3))
            one.stop()
            one.start()
            with client(one.address) as c:
                c.client_kill_filter(_type="normal", skipme=True)  # connections are cut as well
                for number in range(4, 8):
                    put(c, "sim0", 0, number, 4)
                put(c, "sim0", 0, 8, 0, last=True)
            served += flat(batches)
    assert served == [(0, 0, n, s) for n in range(8) for s in range(4)]


def test_a_connection_that_is_cut_in_the_middle_of_values_costs_nothing(address):
    put_ = put_all(address, ["sim0"], 40, samples=20)  # a megabyte each
    done, cuts = threading.Event(), []

    def cut():
        with client(address) as c:
            while not done.is_set():
                cuts.append(c.client_kill_filter(_type="normal", skipme=True))
                done.wait(0.02)

    cutter = threading.Thread(target=cut)
    with train_on(address, Rounds(4), shuffle=False) as dataset:
        batches = iter(dataset)
        served = identify(next(batches))
        cutter.start()
        try:
            served += flat(batches)
        finally:
            done.set()
            cutter.join(20)
    assert served == put_
    assert sum(cuts) > 1


def test_a_full_memory_evicts_and_what_is_there_is_served_whole(tmp_path):
    options = ["--maxmemory", "12mb", "--maxmemory-policy", "volatile-lru"]
    with running(tmp_path, *options) as one, client(one.address) as c:
        for number in range(40):
            put(c, "sim0", 0, number, 20)
            c.expire(key("sim0", "0", number), 3600)  # values may go, names may not
        put(c, "sim0", 0, 40, 0, last=True)
        there = sorted(int(k.rpartition(b".")[2]) for k in c.keys("v.*"))
        assert 1 < len(there) < 30
        with train_on(one.address, Rounds(3), shuffle=False) as dataset:
            served = flat(dataset)
            source = dataset.stats().source
    assert served == [(0, 0, n, s) for n in there for s in range(20)]
    assert source["evicted"] == 40 - len(there)


def test_a_killed_trainer_goes_on_from_its_file(address, tmp_path):
    put_ = put_all(address, ["sim0", "sim1"], 10)
    code = f"""
import pickle
import superbatch as sb
from superbatch.stream import Rounds, StreamSource
from tests.stream.plain import Reader, identify
source = StreamSource({address!r}, "sim*", Rounds(4), timeout=20, connect=Reader)
dataset = sb.SuperbatchDataset(source, None, replays=1)
served = []
for batch in dataset:
    served += identify(batch)
    with open("state.tmp", "wb") as file:
        pickle.dump((served, dataset.state_dict()), file)
    import os
    os.replace("state.tmp", "state")
    if len(served) >= 28:
        os.kill(os.getpid(), 9)
"""
    process = script(tmp_path, code)
    assert process.wait(60) == -signal.SIGKILL
    served, state = pickle.loads((tmp_path / "state").read_bytes())
    assert len(served) == 28
    with train_on(address, Rounds(4)) as dataset:
        dataset.load_state_dict(state)
        served += flat(dataset)
    assert sorted(served) == sorted(put_)


def test_a_silent_producer_is_named(address):
    with client(address) as c:
        put(c, "sim3", 0, 0, 4)
    with (
        train_on(address, Rounds(2), source={"silence": 1.5}) as dataset,
        pytest.raises(
            sb.SuperbatchError, match=r"'sim3' has given no sign of life for .* s .*last batch: 0"
        ),
    ):
        next(iter(dataset))


def test_a_reservoir_waits_at_its_ratio_and_does_not_serve_a_dead_stream_for_ever(address):
    with client(address) as c:
        put(c, "sim0", 0, 0, 4)
    served = []

    def serve(dataset):
        for batch in dataset:
            served.append(identify(batch))

    limited = train_on(address, Reservoir(8, ratio=2), 4, source={"timeout": 1})
    with limited, pytest.raises(sb.SuperbatchError, match=r"as ratio=2 allows .* timeout=1 s"):
        serve(limited)
    assert len(served) == 2
    with client(address) as c:
        put(c, "sim0", 0, 1, 4)
    endless = train_on(address, Reservoir(8), 4, source={"silence": 3})
    with endless, pytest.raises(sb.SuperbatchError, match="'sim0' has given no sign of life"):
        serve(endless)
    assert len(served) > 100  # what is there is served meanwhile


def test_waits_end_and_say_what_was_waited_for(address):
    with pytest.raises(
        sb.SuperbatchError, match=r"first batch .*timeout=0.5 s: no producer 'sim\*'"
    ):
        train_on(address, Rounds(2), source={"timeout": 0.5})
    with client(address) as c:
        put(c, "sim0", 0, 0, 4)
    with (
        train_on(address, Rounds(2), source={"timeout": 1}) as dataset,
        pytest.raises(
            sb.SuperbatchError, match="batch 2 of 2 of round 0 did not come within timeout=1 s"
        ),
    ):
        next(iter(dataset))


def test_a_batch_too_large_says_what_to_write(address):
    with client(address) as c:
        put(c, "sim0", 0, 0, 4)
        put(c, "sim0", 0, 1, 9)
        put(c, "sim0", 0, 2, 0, last=True)
    with (
        train_on(address, Rounds(2)) as dataset,
        pytest.raises(
            sb.SuperbatchError, match=r"batch 1 of producer 'sim0' has 9 samples.*largest=9"
        ),
    ):
        next(iter(dataset))
    with train_on(address, Rounds(2), source={"largest": 9}, shuffle=False) as dataset:
        assert [len(identify(b)) for b in dataset] == [4, 9]


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("assign", ["batches", "samples", "producers"])
def test_ranks_share_rounds_and_make_equal_numbers_of_steps(address, assign, batch_size):
    put_ = put_all(address, ["sim0", "sim1", "sim2", "sim3"], 6)
    with client(address) as c:
        c.delete(key("sim1", "0", 3))  # so that one rank has less
    gone = {row for row in put_ if row[:3] == (1, 0, 3)}
    source = {"assign": assign, "group": f"run {batch_size}", "expect": 4}
    served, states = {}, {}

    def train(rank):
        options = {"rank": rank, "world_size": 2, "source": source, "replays": 2}
        with train_on(address, Rounds(8), batch_size, **options) as dataset:
            batches = iter(dataset)
            served[rank] = [identify(next(batches)) for _ in range(5)]
            states[rank] = dataset.state_dict()

    def resume(rank):
        again = source | {"group": f"another run {batch_size}"}
        options = {"rank": rank, "world_size": 2, "source": again, "replays": 2}
        with train_on(address, Rounds(8), batch_size, **options) as dataset:
            dataset.load_state_dict(states[rank])
            served[rank] += [identify(b) for b in dataset]

    for work in (train, resume):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))
    assert len(served[0]) == len(served[1])
    counts = [collections.Counter(itertools.chain(*served[rank])) for rank in range(2)]
    assert not counts[0].keys() & counts[1].keys()
    assert set(counts[0].values()) == set(counts[1].values()) == {2}
    both = counts[0].keys() | counts[1].keys()
    lost = set(put_) - gone - both
    assert both <= set(put_) - gone
    # What the other rank had to leave out: with split batches nothing, for it is gone on both.
    assert len(lost) <= (0 if assign == "samples" else 4)
    if assign == "producers":
        owners = [{row[0] for row in c} for c in counts]
        assert not owners[0] & owners[1]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("assign", ["batches", "samples", "producers"])
def test_ranks_come_and_go_between_rounds(address, assign, ranks):
    """Two ranks begin; one or three go on from the state of any of them, where a round has ended."""
    put_ = put_all(address, ["sim0", "sim1", "sim2"], 6, samples=6)
    source = {"assign": assign, "expect": 3}
    served, later, states = [], {}, {}

    def train(rank, world_size, state):
        options = {"group": f"of {world_size}, {ranks}"} if world_size > 1 else {}
        with train_on(
            address,
            Rounds(6),
            None,
            source=source | options,
            rank=rank,
            world_size=world_size,
            replays=1,
        ) as dataset:
            if state is not None:
                dataset.load_state_dict(state)
                later[rank] = list(map(identify, dataset))
                return
            batches = iter(dataset)
            first = 6 if assign == "samples" else 3
            served.extend(identify(next(batches)) for _ in range(first))
            states[rank] = dataset.state_dict()
            next(batches)
            states["later", rank] = dataset.state_dict()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: train(rank, 2, None), range(2)))
    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(lambda rank: train(rank, ranks, states[rank % 2]), range(ranks)))
    assert len({len(batches) for batches in later.values()}) == 1
    rows = sorted(itertools.chain(*served, *itertools.chain(*later.values())))
    if (assign, ranks) == ("producers", 3):
        # each has a producer of its own now; of two producers more was left than of the third
        assert len(rows) == len(set(rows)) == 6 * (6 + 3 * len(later[0])) >= 6 * (6 + 9)
        owned = [{row[0] for batch in batches for row in batch} for batches in later.values()]
        assert sorted(map(sorted, owned)) == [[0], [1], [2]]
    else:
        assert rows == sorted(put_)
    # in the middle of a round it is another matter
    with (
        train_on(address, Rounds(6), None, source=source) as dataset,
        pytest.raises(ValueError, match=r"world_size=2, this one has .*take it between two rounds"),
    ):
        dataset.load_state_dict(states["later", 0])


@pytest.mark.parametrize("assign", ["batches", "samples", "producers"])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_ranks_draw_in_step_from_reservoirs_of_their_own(address, assign, batch_size):
    """While producers run: as many batches on each, no sample on both, and in the end all of them seen."""
    running_ = [producer(address, f"sim{n}", 12, pause=0.01) for n in range(4)]
    group = f"reservoirs {assign} {batch_size}"
    source = {"assign": assign, "group": group, "expect": 4}
    served, stats = {}, {}

    def train(rank):
        options = {"rank": rank, "world_size": 2, "source": source, "seed": 5}
        buffer = Reservoir(40, watermark=8, superbatch=8)
        with train_on(address, buffer, batch_size, **options) as dataset:
            served[rank] = [identify(batch) for batch in dataset]
            stats[rank] = dataset.stats().source

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, range(2)))
    wait_for(*running_)
    assert len(served[0]) == len(served[1]) > 12
    assert [len(b) for b in served[0]] == [len(b) for b in served[1]]
    seen = [collections.Counter(itertools.chain(*served[rank])) for rank in range(2)]
    assert not seen[0].keys() & seen[1].keys()
    both = seen[0].keys() | seen[1].keys()
    every = {(p, 0, n, s) for p in range(4) for n in range(12) for s in range(4)}
    assert both <= every
    if assign == "producers":
        owners = [{row[0] for row in c} for c in seen]
        assert not owners[0] & owners[1]
    # What one rank has more than the other at the end of the stream is left out.
    assert len(every - both) <= (0 if assign == "samples" else 4 * 4)
    assert len(seen[0]) == len(seen[1])


def test_reservoirs_of_ranks_go_on_from_their_states(address):
    """Both start anew in the middle: what is served after it is what would have been served without."""
    put_ = put_all(address, ["sim0", "sim1"], 10)
    served, states, rest = {}, {}, {}

    def options(rank, group):
        source = {"assign": "samples", "group": group, "expect": 2}
        return {"rank": rank, "world_size": 2, "source": source, "seed": 2}

    buffer = Reservoir(20, watermark=8, superbatch=6)

    def train(rank):
        with train_on(address, buffer, 3, **options(rank, "first")) as dataset:
            batches = iter(dataset)
            served[rank] = [identify(next(batches)) for _ in range(5)]
            states[rank] = pickle.loads(pickle.dumps(dataset.state_dict()))
            rest[rank] = [identify(batch) for batch in batches]

    def resume(rank):
        with train_on(address, buffer, 3, **options(rank, "second")) as dataset:
            dataset.load_state_dict(states[rank])
            again = [identify(batch) for batch in dataset]
        assert again == rest[rank]

    for work in (train, resume):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))
    everything = itertools.chain(*served[0], *rest[0], *served[1], *rest[1])
    assert set(everything) == set(put_)


def test_reservoirs_that_cannot_be_filled_again_are_refused(address):
    put_all(address, ["sim0"], 8)
    states = {}

    def options(rank, group):
        return {"rank": rank, "world_size": 2, "source": {"group": group}, "seed": 2}

    def train(rank):
        with train_on(address, Reservoir(16, superbatch=4), 2, **options(rank, "a")) as dataset:
            batches = iter(dataset)
            next(batches)
            states[rank] = dataset.state_dict()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, range(2)))
    with client(address) as c:
        c.delete(key("sim0", "0", 0), key("sim0", "0", 1))

    def resume(rank):
        with train_on(address, Reservoir(16, superbatch=4), 2, **options(rank, "b")) as dataset:
            dataset.load_state_dict(states[rank])
            with pytest.raises(sb.SuperbatchError, match="not on the server any more"):
                list(dataset)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(resume, range(2)))


def test_each_rank_gets_its_part_of_the_newest_batch(address):
    source = {"latest": True, "group": "newest"}
    served, skipped = {}, {}
    with client(address) as c:
        for number in range(5):
            put(c, "sim0", 0, number, 4)

    def train(rank):
        with train_on(address, source=source, rank=rank, world_size=2) as dataset:
            batches = iter(dataset)
            served[rank] = [identify(next(batches))]
            if rank == 0:
                with client(address) as c:
                    put(c, "sim0", 0, 5, 4)
                    put(c, "sim0", 0, 6, 0, last=True)
            served[rank] += [identify(batch) for batch in batches]
            skipped[rank] = dataset.stats().source["skipped"]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, range(2)))
    for rank in range(2):
        mine = [2 * rank, 2 * rank + 1]
        assert served[rank] == [[(0, 0, 4, s) for s in mine], [(0, 0, 5, s) for s in mine]]
    assert skipped == {0: 4, 1: 0}


def test_ranks_that_train_together_meet_by_themselves(address, tmp_path):
    put_ = put_all(address, ["sim0", "sim1", "sim2"], 7)
    code = """
import json, os, signal, sys
import torch
import torch.distributed as dist
import superbatch as sb
from superbatch.stream import Rounds, StreamSource
from tests.stream.plain import Reader, identify

rank, address, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
source = StreamSource(address, "sim*", Rounds(4), timeout=20, connect=Reader)
served = []
with sb.SuperbatchDataset(source, None, replays=(1, 2), restarts=1, timeout=40) as dataset:
    for batch in dataset:
        served.append(identify(batch))
        dist.all_reduce(torch.zeros(1))  # a step of training: hangs where a rank makes fewer
        if len(served) == 3 and rank == 0:
            os.kill(dataset._loaders.pids[0], signal.SIGKILL)  # the one that settles rounds
print(json.dumps(served))
dist.barrier()
dist.destroy_process_group()
"""
    (tmp_path / "rank.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "rank.py"), str(rank), address, str(tmp_path)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        served = [json.loads(process.communicate(timeout=60)[0]) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait(10)
    assert len(served[0]) == len(served[1])
    each = [{tuple(row) for batch in batches for row in batch} for batches in served]
    assert not each[0] & each[1]
    # 21 batches: the last one has no counterpart.
    assert len(each[0] | each[1]) == 20 * 4
    assert each[0] | each[1] <= set(put_)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ({}, {"loaders": 2}, "loaders=2"),
        ({"buffer": Reservoir(10)}, {"replays": (1, 4)}, "write replays=1"),
        ({"buffer": Reservoir(10)}, {"batch_size": 11}, "batch_size=11 is more than capacity=10"),
        ({"buffer": 4}, {}, "buffer=4 is no buffer"),
        ({"latest": True}, {}, "leave out Rounds"),
        ({"producers": []}, {}, "names none"),
        ({"timeout": 0}, {}, "timeout=0"),
        ({"assign": "rows"}, {}, "assign='rows' is not known"),
        ({}, {"rank": 0, "world_size": 2}, "initialise torch.distributed first"),
        ({"buffer": Rounds(3)}, {"rank": 0, "world_size": 2}, "a multiple of it"),
        ({"buffer": Reservoir(9)}, {"rank": 0, "world_size": 2, "batch_size": 3}, "same group="),
        (
            {"buffer": None, "latest": True, "assign": "producers"},
            {},
            "leave it out, and each rank",
        ),
    ],
)
def test_arguments_that_cannot_work(source, options, message):
    def make():
        built = StreamSource("nowhere", **({"buffer": Rounds(2), "connect": Reader} | source))
        sb.SuperbatchDataset(built, **({"replays": 1} | options))

    with pytest.raises(sb.SuperbatchError, match=message):
        make()
