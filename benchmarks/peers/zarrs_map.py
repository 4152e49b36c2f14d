"""zarr-python with the ``zarrs`` codecs behind a map-style dataset, in DataLoader workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers import (
    Stream,
    WindowDataset,
    as_is,
    empty_batch,
    forever,
    mean_decoded_bytes,
)
from benchmarks.workloads import Index, Workload

NAME = "zarr + zarrs"
ACCESS = "random"
TUNING = "a worker per core, spawned; the zarrs pipeline with threading.max_workers 1 per worker"
SOURCE = "https://pypi.org/project/zarrs/ (Configuration, Concurrency)"


def cannot(workload: Workload) -> str | None:
    return "the store is empty" if workload.absent else None


class ZarrsDataset(WindowDataset):
    def open_arrays(self) -> dict[str, Any]:
        import zarr

        zarr.config.set(
            {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": 1}
        )
        return {
            a.name: zarr.open_array(self.store / a.name, mode="r") for a in self.workload.arrays
        }

    def read(self, arrays: dict[str, Any], wanted: list[dict[str, Index]]) -> dict[str, Any]:
        import torch

        batch = empty_batch(self.workload, len(wanted))
        for k, windows in enumerate(wanted):
            for name, array in arrays.items():
                batch[name][k] = array[windows[name]]
        return {name: torch.from_numpy(values) for name, values in batch.items()}


def open(workload: Workload, store: Path, cores: int) -> Stream:
    from torch.utils.data import DataLoader

    dataset: Any = ZarrsDataset(workload, store)
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
