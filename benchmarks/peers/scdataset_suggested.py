"""scDataset with the settings that its own ``suggest_parameters`` gives, which favour speed.

Its blocks are many samples out of one place: the column of bytes decoded per sample shows how many.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import Stream
from benchmarks.peers.scdataset_blocks import Fetch, Windows, pick, stream
from benchmarks.workloads import Workload

NAME = "scDataset, suggested"
ACCESS = "blocks"
TUNING = (
    "suggest_parameters(): balanced block_size and fetch_factor, 256 where memory allows; "
    "a worker per core, spawned; zarrs pipeline in the callback"
)
SOURCE = "https://scdataset.github.io/ (scdataset.experimental.suggest_parameters)"


LARGEST_FETCH = 1e9


def cannot(workload: Workload) -> str | None:
    if workload.absent:
        return "the store is empty"
    fetch = 256 * workload.batch_size * workload.sample_bytes
    if fetch > LARGEST_FETCH:
        return f"the suggested 256 batches are {fetch / 1e9:.1f} GB in each worker"
    return None


def open(workload: Workload, store: Path, cores: int) -> Stream:
    from scdataset import suggest_parameters

    windows = Windows(workload, store)
    advice = suggest_parameters(
        windows,
        workload.batch_size,
        verbose=False,
        fetch_callback=Fetch(1),
        batch_callback=pick,
    )
    block = int(advice["block_size_balanced"])
    fetch = int(advice["fetch_factor"]) * workload.batch_size
    windows.arrays = None  # opened to estimate the size of a sample; workers open their own
    return stream(workload, windows, cores, block, fetch)
