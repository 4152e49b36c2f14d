"""A plain PyTorch DataLoader over arrays in memory: the ceiling of any loader that builds batches.

PyTorch's documentation advises single-process loading where the data fits in memory: workers
would only add a copy through shared memory.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers import Stream, WindowDataset, as_is, forever
from benchmarks.workloads import Index, Workload

NAME = "PyTorch, in memory"
ACCESS = "memory"
TUNING = "num_workers=0, __getitems__; at most 1 GB of the archive, loaded before the clock starts"
SOURCE = "https://docs.pytorch.org/docs/stable/data.html#single-process-data-loading-default"

LIMIT = 1e9


def cannot(workload: Workload) -> str | None:
    return "the store is empty" if workload.absent else None


def _part(workload: Workload) -> Workload:
    """The first steps of every array, no more than LIMIT bytes in all."""
    share = min(1.0, LIMIT / sum(a.nbytes for a in workload.arrays))
    first = workload.anchor_dims[0]
    least = max(a.window.get(first, 1) for a in workload.arrays)
    kept = max(least, int(workload.sizes[first] * share))
    return replace(
        workload,
        arrays=tuple(
            replace(
                a,
                shape=tuple(
                    min(n, kept) if d == first else n for d, n in zip(a.dims, a.shape, strict=True)
                ),
            )
            for a in workload.arrays
        ),
    )


class InMemory(WindowDataset):
    def open_arrays(self) -> dict[str, Any]:
        import torch
        import zarr

        return {
            a.name: torch.from_numpy(
                zarr.open_array(self.store / a.name, mode="r")[tuple(slice(n) for n in a.shape)]
            )
            for a in self.workload.arrays
        }

    def read(self, arrays: dict[str, Any], wanted: list[dict[str, Index]]) -> dict[str, Any]:
        import torch

        return {name: torch.stack([data[w[name]] for w in wanted]) for name, data in arrays.items()}


def open(workload: Workload, store: Path, cores: int) -> Stream:
    from torch.utils.data import DataLoader

    part = _part(workload)
    dataset: Any = InMemory(part, store)
    loader = DataLoader(
        dataset, batch_size=workload.batch_size, shuffle=True, drop_last=True, collate_fn=as_is
    )
    return Stream(forever(loader), ahead=1, decoded_bytes_per_sample=0.0)
