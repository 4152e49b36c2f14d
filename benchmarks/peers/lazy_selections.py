"""The 2021 design, rebuilt small: superbatches made of one lazy xarray selection per sample.

A background process selects every sample lazily out of chunk sequences of a Dask-backed xarray
object, computes all of them with one ``dask.compute``, and sends the pickled result through a
Pipe. The training process shuffles it into batches while the next one is made.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ANCHOR, Stream
from benchmarks.workloads import Workload

NAME = "2021 design"
ACCESS = "superbatch"
TUNING = (
    "the workload's superbatch; chunks={} (one Dask chunk per Zarr chunk), threaded scheduler on "
    "all cores, zarrs pipeline, one process ahead of the training loop"
)
SOURCE = "https://docs.dask.org/en/stable/best-practices.html (one compute for many results)"


def cannot(workload: Workload) -> str | None:
    return "the store is empty" if workload.absent else None


def _load(pipe: Connection, workload: Workload, store: Path, cores: int) -> None:
    """In the background process: superbatch after superbatch into the Pipe."""
    import dask
    import xarray
    import zarr

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": 1})
    dask.config.set(scheduler="threads", num_workers=cores)
    data = xarray.open_zarr(store, chunks={}, consolidated=False)
    arrays = {a.name: data[a.name] for a in workload.arrays}
    seed = 0
    while True:
        seed += 1
        anchors = _draw(workload, seed)
        lazy = [
            arrays[a.name][workload.indices(anchor)[a.name]].data
            for anchor in anchors
            for a in workload.arrays
        ]
        computed = dask.compute(*lazy)
        n = len(workload.arrays)
        superbatch = {a.name: np.stack(computed[k::n]) for k, a in enumerate(workload.arrays)}
        superbatch[ANCHOR] = anchors
        try:
            pipe.send(superbatch)
        except (BrokenPipeError, ConnectionResetError):
            return


def _draw(workload: Workload, seed: int) -> np.ndarray:
    """Anchors of one superbatch: inside the chunk sequences, the same number in each."""
    per = workload.samples // workload.sequences
    boxes = workload.sequence_boxes(seed)
    return np.concatenate(
        [workload.anchors(per, 1000 * seed + k, box) for k, box in enumerate(boxes)]
    )


def open(workload: Workload, store: Path, cores: int) -> Stream:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_load, args=(sending, workload, store, cores))
    process.start()
    sending.close()

    def batches() -> Iterator[dict[str, Any]]:
        import torch

        generator = torch.Generator().manual_seed(0)
        while True:
            superbatch = {k: torch.from_numpy(v) for k, v in receiving.recv().items()}
            count = len(superbatch[ANCHOR])
            order = torch.randperm(count, generator=generator)
            for rows in order.split(workload.batch_size):
                if len(rows) == workload.batch_size:
                    yield {k: v.index_select(0, rows) for k, v in superbatch.items()}

    def close() -> None:
        receiving.close()
        process.terminate()
        process.join(10)

    cycle = workload.samples // workload.sequences * workload.sequences // workload.batch_size
    return Stream(
        batches(),
        ahead=cycle,
        cycle=cycle,
        decoded_bytes_per_sample=workload.superbatch_decoded_bytes / workload.samples,
        close=close,
    )
