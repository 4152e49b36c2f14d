"""An existing Dask cluster does the work: right values, nothing left on it, and clear errors."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import deque

import numpy as np
import pytest
from distributed import Client

import superbatch as sb
from superbatch.errors import ArgumentError
from tests.fields import corners, field, write_plain
from tests.processes import ROOT, until

WHOLE = field((400, 6))

CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()  # until the test closes it
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "field.zarr"
    return write_plain(path, WHOLE, chunks=(10, 6), dimension_names=("time", "x"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers, in processes of their own; its address, and who runs it."""
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(CLUSTER)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "0",
        },
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("tcp://"), address
        yield address, process
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def client(cluster):
    with Client(cluster[0], set_as_default=False, timeout=20) as made:
        yield made


def source(stored, **options):
    options = {"samples": 64, "sequences": 8} | options
    return sb.ArchiveSource({"field": sb.Window(stored, time=5)}, **options)


def order(batches):
    return np.concatenate([corners(batch["field"], WHOLE)[:, 0] for batch in batches]).tolist()


def left_on(client):
    """The keys that the scheduler still knows."""
    return client.run_on_scheduler(lambda dask_scheduler: sorted(map(str, dask_scheduler.tasks)))


def test_a_cluster_serves_what_a_loader_alone_serves(cluster, client, stored):
    options = {"seed": 2, "replays": 1, "batches_per_epoch": 40, "timeout": 60}
    made = source(stored, turnover=0.5)  # sequences stay on the workers between superbatches
    with sb.SuperbatchDataset(made, 8, **options) as alone:
        expected = order(alone)
    address, _ = cluster
    with sb.SuperbatchDataset(made, 8, dask=address, **options) as dataset:
        assert order(dataset) == expected
        assert any("load" in key for key in left_on(client))  # they are there
    assert until(lambda: left_on(client) == [], 5), left_on(client)

    # A function that makes the client, and a transform, which the workers run.
    def connect():
        from distributed import Client

        return Client(address, set_as_default=False)

    def transform(sample):
        import os

        return {**sample, "pid": np.array(os.getpid())}

    workers = set(client.run(os.getpid).values())
    made = source(stored, transform=transform)
    with sb.SuperbatchDataset(made, 8, dask=connect, **options) as dataset:
        batches = list(dataset)
        assert set(np.concatenate([batch["pid"] for batch in batches]).tolist()) <= workers
        assert len(set(order(batches))) > 100
    assert until(lambda: left_on(client) == [], 5), left_on(client)


def test_an_error_on_a_worker_arrives_as_it_was(cluster, client, stored):
    def transform(sample):
        if int(sample["field"][0, 0]) > 600:
            raise LookupError("station 7 is missing")
        return sample

    with (
        sb.SuperbatchDataset(
            source(stored, transform=transform), 8, dask=cluster[0], replays=1, timeout=60
        ) as dataset,
        pytest.raises(LookupError, match="station 7 is missing") as caught,
    ):
        list(itertools.islice(dataset, 40))
    assert any("anchor" in note for note in caught.value.__notes__)
    assert until(lambda: left_on(client) == [], 5), left_on(client)


def test_a_killed_loader_leaves_nothing_on_the_cluster(cluster, client, stored):
    with sb.SuperbatchDataset(
        source(stored, turnover=0.25), 8, dask=cluster[0], replays=1, timeout=60
    ) as dataset:
        batches = iter(dataset)
        next(batches)
        assert left_on(client)
        os.kill(dataset._loaders.pids[0], signal.SIGKILL)
        with pytest.raises(sb.SuperbatchError, match="SIGKILL"):
            list(batches)
    assert until(lambda: left_on(client) == [], 10), left_on(client)


def test_a_worker_that_is_killed_changes_no_sample(cluster, client, stored):
    def slow(sample):
        import time

        time.sleep(0.01)
        return sample

    options = {"seed": 4, "replays": 1, "batches_per_epoch": 24, "timeout": 60}
    made = source(stored, turnover=0.5)
    with sb.SuperbatchDataset(made, 8, **options) as alone:
        expected = order(alone)
    made = source(stored, turnover=0.5, transform=slow)
    with sb.SuperbatchDataset(made, 8, dask=cluster[0], **options) as dataset:
        served = []
        for number, batch in enumerate(dataset):
            served.append(batch)
            if number in (0, 9):  # 0.6 s of work for each superbatch: it is in the middle of one
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert order(served) == expected


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense"])
def test_a_wrong_address_is_said_in_one_sentence(stored, address):
    began = time.monotonic()
    dataset = sb.SuperbatchDataset(source(stored), 8, dask=address, timeout=60)
    with dataset, pytest.raises(sb.SuperbatchError, match="no Dask scheduler answers") as caught:
        next(iter(dataset))
    assert time.monotonic() - began < 25
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_that_returns_no_client_is_named(stored):
    dataset = sb.SuperbatchDataset(source(stored), 8, dask=lambda: 7, timeout=60)
    with dataset, pytest.raises(ArgumentError, match=r"must return a distributed\.Client"):
        next(iter(dataset))


def test_a_scheduler_that_goes_away_is_one_clear_error(cluster, stored):
    """The last test of this cluster."""
    address, process = cluster
    with sb.SuperbatchDataset(source(stored), 8, dask=address, replays=1, timeout=30) as dataset:
        batches = iter(dataset)
        next(batches)
        process.stdin.close()
        until_late = time.monotonic() + 25
        in_time = itertools.takewhile(lambda _: time.monotonic() < until_late, batches)
        with pytest.raises(sb.SuperbatchError, match="went away") as caught:
            deque(in_time, maxlen=0)
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)
