"""TensorStore behind a map-style dataset, in DataLoader workers.

Reads of one batch are issued together, as a ``Batch``; each worker has a cache pool of its own
(caches are not shared across processes) and one core to decode on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers import (
    Stream,
    WindowDataset,
    as_is,
    cache_bytes,
    forever,
    mean_decoded_bytes,
)
from benchmarks.workloads import Index, Workload

NAME = "tensorstore"
ACCESS = "random"
TUNING = (
    "a worker per core, spawned; cache pools of a tenth of the archive in all; "
    "the reads of a batch in one ts.Batch; data_copy_concurrency 1 per worker; "
    "recheck_cached_data=False"
)
SOURCE = (
    "https://google.github.io/tensorstore/context.html, "
    "https://google.github.io/tensorstore/python/api/tensorstore.Batch.html, "
    "https://github.com/google/tensorstore/issues/142"
)


def cannot(workload: Workload) -> str | None:
    return "the store is empty" if workload.absent else None


class TensorStoreDataset(WindowDataset):
    workers = 1

    def open_arrays(self) -> dict[str, Any]:
        import tensorstore as ts

        context = ts.Context(
            {
                "cache_pool": {"total_bytes_limit": cache_bytes(self.workload) // self.workers},
                "data_copy_concurrency": {"limit": 1},
            }
        )
        return {
            a.name: ts.open(
                {
                    "driver": "zarr3",
                    "kvstore": {"driver": "file", "path": f"{self.store / a.name}/"},
                },
                context=context,
                read=True,
                open=True,
                recheck_cached_data=False,
                recheck_cached_metadata=False,
            ).result()
            for a in self.workload.arrays
        }

    def read(self, arrays: dict[str, Any], wanted: list[dict[str, Index]]) -> dict[str, Any]:
        import numpy as np
        import tensorstore as ts
        import torch

        with ts.Batch() as together:
            futures = {
                name: [array[w[name]].read(batch=together) for w in wanted]
                for name, array in arrays.items()
            }
        return {
            name: torch.from_numpy(np.stack([f.result() for f in reads]))
            for name, reads in futures.items()
        }


def open(workload: Workload, store: Path, cores: int) -> Stream:
    from torch.utils.data import DataLoader

    dataset: Any = TensorStoreDataset(workload, store)
    dataset.workers = cores
    loader = DataLoader(
        dataset,
        batch_size=workload.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=cores,
        multiprocessing_context="spawn",
        persistent_workers=True,
        prefetch_factor=2,
        collate_fn=as_is,
    )
    return Stream(
        forever(loader),
        ahead=2 * cores,
        cycle=cores,
        decoded_bytes_per_sample=mean_decoded_bytes(workload, dataset.anchors),
    )
