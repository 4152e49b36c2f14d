"""A Dask cluster whose scheduler and workers are on machines of their own; what travels between them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from distributed import Client

import superbatch as sb
from tests.fields import corners, field, write_plain
from tests.namespaces import NotAllowed, machines
from tests.processes import ROOT, until
from tests.test_ranks import BATCH, WINDOWS, run_ranks

WORKERS = 3


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and three workers, each in a network namespace: its address, and the machines."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "0",
    }
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = []
    try:
        with machines(1 + WORKERS) as made:
            scheduler, *workers = made
            address = f"tcp://{scheduler.address}:8786"
            command = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
            host = ["--host", scheduler.address, "--port", "8786", "--no-dashboard"]
            processes.append(scheduler.start(*command, *host, **quiet))
            command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
            command += ["--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
            processes += [w.start(*command, "--host", w.address, **quiet) for w in workers]
            try:
                with Client(address, set_as_default=False, timeout=40) as client:
                    client.wait_for_workers(WORKERS, timeout=40)
                yield address, made
            finally:
                for process in processes:
                    process.kill()
                    process.wait(10)
    except NotAllowed as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")


@pytest.fixture
def client(cluster):
    with Client(cluster[0], set_as_default=False, timeout=20) as made:
        yield made


def left_on(client):
    """The keys that the scheduler still knows."""
    return client.run_on_scheduler(lambda dask_scheduler: sorted(map(str, dask_scheduler.tasks)))


@pytest.mark.parametrize("turnover", [1.0, 0.5])
def test_windows_travel_and_blocks_stay(cluster, client, tmp_path, turnover):
    """Blocks stay on the workers that decoded them; samples go straight to the loader."""
    address, (scheduler, *workers) = cluster
    whole = field((480, 96, 96))
    stored = write_plain(
        tmp_path / "field.zarr", whole, chunks=(12, 96, 96), dimension_names=("time", "y", "x")
    )
    window = {"field": sb.Window(stored, time=2, y=24, x=24)}
    source = sb.ArchiveSource(window, samples=256, sequences=8, turnover=turnover)
    options = {"seed": 3, "replays": 1, "batches_per_epoch": 96, "timeout": 60}
    with sb.SuperbatchDataset(source, 16, **options) as alone:
        expected = [corners(batch["field"], whole) for batch in alone]

    sent = [machine.sent() for machine in (scheduler, *workers)]
    received = [machine.received() for machine in workers]
    with sb.SuperbatchDataset(source, 16, dask=address, **options) as dataset:
        got = [corners(batch["field"], whole) for batch in dataset]
        stats = dataset.stats()
        kept = [where for key, where in client.who_has().items() if "load" in str(key)]
    assert np.array_equal(np.concatenate(got), np.concatenate(expected))
    # Between superbatches, blocks are kept where they are drawn from again, by several workers.
    if turnover < 1:
        assert len(set(itertools.chain.from_iterable(kept))) > 1

    from_scheduler, *from_workers = (
        machine.sent() - before for machine, before in zip((scheduler, *workers), sent, strict=True)
    )
    to_workers = sum(m.received() - before for m, before in zip(workers, received, strict=True))
    served = stats.fresh * source.describe()["sample_bytes"]
    loaded = stats.loaded_blocks * source.sequence_bytes
    assert loaded > 2 * served
    assert all(
        sent > 0.15 * sum(from_workers) for sent in from_workers
    )  # all of them do their part
    assert from_scheduler < 0.1 * served
    # up to two superbatches more than were served, and what protocols add
    assert served < sum(from_workers) < 1.7 * served
    assert to_workers < 0.1 * served
    assert until(lambda: left_on(client) == [], 5), left_on(client)


def test_ranks_that_share_a_cluster_train_in_step_on_different_samples(cluster, client, tmp_path):
    found = run_ranks(tmp_path, 2, cluster[0])
    batches = -(-WINDOWS // (BATCH * 2))
    for name in ("once", "next epoch"):
        served = [each[name]["starts"] for each in found]
        assert [len(starts) for starts in served] == [2 * batches] * 2
        mine = [set(itertools.chain.from_iterable(starts)) for starts in served]
        assert sum(map(len, mine)) == WINDOWS
        assert set.union(*mine) == set(range(WINDOWS))
        assert found[0][name]["weights"] == found[1][name]["weights"]
    assert until(lambda: left_on(client) == [], 5), left_on(client)
