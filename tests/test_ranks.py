"""Several processes that train together, in real process groups."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import superbatch as sb
from superbatch.errors import ArgumentError
from superbatch.source import Settings
from tests.fields import field, write_plain
from tests.processes import ROOT, all_gone
from tests.rank_worker import SHAPE, WIDTH, WINDOWS

BATCH, SAMPLES = 4, 24


def run_ranks(folder, count, *arguments, seconds=110.0):
    """What each rank has served; fails where they have not all come to an end in time."""
    stored = write_plain(
        folder / "field.zarr", field(SHAPE), chunks=(4, 3), dimension_names=("time", "x")
    )
    assert stored.shape == SHAPE
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.rank_worker",
                str(rank),
                str(count),
                str(folder),
                *arguments,
            ],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for rank in range(count)
    ]
    try:
        assert all_gone([p.pid for p in processes], seconds), "the ranks hang"
    finally:
        for process in processes:
            process.kill()
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * count, "\n".join(errors)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_train_in_step_on_different_samples(tmp_path, count):
    found = run_ranks(tmp_path, count)
    batches = -(-WINDOWS // (BATCH * count))  # 13 for two ranks, 9 for three: neither divides

    for name in ("once", "next epoch"):
        served = [each[name]["starts"] for each in found]
        assert [len(starts) for starts in served] == [2 * batches] * count
        assert {each["length"] for each in found} == {2 * batches}
        mine = [set(itertools.chain.from_iterable(starts)) for starts in served]
        assert sum(map(len, mine)) == WINDOWS  # disjoint: none is counted twice
        assert set.union(*mine) == set(range(WINDOWS))  # and none is missing
        for starts in served:  # each was served exactly twice: fresh, and replayed
            counts = np.bincount(list(itertools.chain.from_iterable(starts)))
            assert set(counts.tolist()) <= {0, 2}
        weights = [each[name]["weights"] for each in found]
        assert all(w == weights[0] for w in weights)
    assert found[0]["once"]["starts"] != found[0]["next epoch"]["starts"]

    # A range of replays is settled alike by all, whatever their speed.
    assert [len(each["range"]["starts"]) for each in found] == [61] * count
    assert len({tuple(each["passes"]) for each in found}) == 1
    ranks = [each["range"]["starts"] for each in found]
    assert all(a != b for a, b in itertools.combinations(ranks, 2))
    assert len({json.dumps(each["range"]["weights"]) for each in found}) == 1

    if count == 3:
        return
    served = [each["once, range"]["starts"] for each in found]
    assert len({len(starts) for starts in served}) == 1
    assert batches <= len(served[0]) <= 4 * batches
    assert {s for starts in served for batch in starts for s in batch} == set(range(WINDOWS))


def test_ranks_that_are_given_share_1000_samples_in_batches_of_10(tmp_path):
    stored = write_plain(
        tmp_path / "field.zarr", field((1004,)), chunks=(20,), dimension_names=("time",)
    )
    source = sb.ArchiveSource(
        {"field": sb.Window(stored, time=WIDTH)}, samples=200, sequences=10, coverage="once"
    )
    plans = [source.bind(Settings(10, 0, rank, 3, True, 1, 1)).plan for rank in range(3)]
    assert [plan.epoch_batches for plan in plans] == [34, 34, 34]
    served = []
    for plan in plans:
        assert sum(plan.batches(i) for i in range(plan.epoch_superbatches)) == 34
        starts = [plan.superbatch(0, i).starts[:, 0] for i in range(plan.epoch_superbatches)]
        served.append(np.concatenate(starts).tolist())
    assert [len(each) for each in served] == [334, 333, 333]
    assert sorted(itertools.chain(*served)) == list(range(1000))
    # The same, served: rank and world size may be given where there is no process group.
    for rank in range(2):
        with sb.SuperbatchDataset(source, 10, replays=1, rank=rank, world_size=3) as dataset:
            batches = list(dataset)
        assert len(batches) == len(dataset) == 34
        assert all(1 <= len(batch["field"]) <= 10 for batch in batches)
        at = np.concatenate([batch["field"][:, 0].numpy() for batch in batches])
        assert at.tolist() == served[rank]


def test_a_range_of_replays_needs_a_process_group(tmp_path):
    stored = write_plain(
        tmp_path / "field.zarr", field((100,)), chunks=(20,), dimension_names=("time",)
    )
    source = sb.ArchiveSource({"field": sb.Window(stored, time=WIDTH)}, samples=64)
    with pytest.raises(ArgumentError, match="write replays as one int") as caught:
        sb.SuperbatchDataset(source, 8, rank=0, world_size=2)
    assert "\n" not in str(caught.value)


def test_more_ranks_than_windows_are_refused(tmp_path):
    stored = write_plain(
        tmp_path / "field.zarr", field((6,)), chunks=(6,), dimension_names=("time",)
    )
    source = sb.ArchiveSource({"field": sb.Window(stored, time=WIDTH)}, samples=8, coverage="once")
    with pytest.raises(ArgumentError, match="3 ranks cannot share 2 valid windows"):
        sb.SuperbatchDataset(source, 8, rank=0, world_size=3, replays=1)


@pytest.mark.parametrize("drops", [{"reject": lambda sample: False}, {"on_error": "skip"}])
def test_passes_of_unequal_length_are_not_settled_among_ranks(drops, monkeypatch) -> None:
    data = xr.DataArray(np.arange(60.0), dims=("time",))
    source = sb.ArchiveSource({"a": sb.Window(data, time=3)}, samples=16, **drops)
    # The question is asked before any rank is: no process group is needed to be told so.
    monkeypatch.setattr("superbatch.dataset.Agreement", lambda ranks: None)
    with pytest.raises(ArgumentError, match="write replays as one int"):
        sb.SuperbatchDataset(source, batch_size=4, replays=(1, 3), rank=0, world_size=2)
    with sb.SuperbatchDataset(source, batch_size=4, replays=2, rank=0, world_size=2):
        pass
