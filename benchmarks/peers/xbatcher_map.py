"""xbatcher's BatchGenerator behind a map-style dataset, in DataLoader workers.

xbatcher cuts an archive into a fixed grid of patches; samples are patches in random order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers import ANCHOR, Stream, as_is, forever
from benchmarks.workloads import Workload, lead

NAME = "xbatcher"
ACCESS = "grid"
TUNING = (
    "a worker per core, spawned, persistent, prefetch_factor 3; one patch per generator item, "
    "loaded once; opened with chunks=None (faster here than with Dask) and the zarrs pipeline"
)
SOURCE = (
    "https://xbatcher.readthedocs.io/en/latest/, "
    "https://earthmover.io/blog/cloud-native-dataloader (github.com/earth-mover/dataloader-demo)"
)


def cannot(workload: Workload) -> str | None:
    if workload.absent:
        return "the store is empty"
    for dim in workload.anchor_dims:
        lengths = {a.window[dim] for a in workload.arrays if dim in a.window}
        if len(lengths) > 1:
            return (
                f"one patch size for all variables, not {sorted(lengths)} along {dim!r} "
                "around one anchor"
            )
    return None


class PatchDataset:
    """One patch of the generator for each index."""

    def __init__(self, workload: Workload, store: Path) -> None:
        self.workload, self.store = workload, store
        self.generator: Any = None
        # Counted here, because the generator is made in each worker: it is slow to pickle.
        self.length = 1
        for dim in workload.anchor_dims:
            window = next(a.window[dim] for a in workload.arrays if dim in a.window)
            self.length *= workload.sizes[dim] // window

    def _open(self) -> Any:
        import xarray
        import xbatcher
        import zarr

        zarr.config.set(
            {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": 1}
        )
        names = [a.name for a in self.workload.arrays]
        data = xarray.open_zarr(self.store, chunks=None, consolidated=False)[names]
        patch = {d: n for a in self.workload.arrays for d, n in a.window.items()}
        return xbatcher.BatchGenerator(data, input_dims=patch, preload_batch=False)

    def __len__(self) -> int:
        return self.length

    def __getitems__(self, indices: list[int]) -> dict[str, Any]:
        import numpy as np
        import torch

        if self.generator is None:
            self.generator = self._open()
            if len(self.generator) != self.length:
                raise ValueError(f"{len(self.generator)} patches, expected {self.length}")
        loaded = [self.generator[i].load() for i in indices]
        batch: dict[str, Any] = {}
        for a in self.workload.arrays:
            # xbatcher may put the dimensions in another order, or stack those that are not cut.
            values = [p[a.name].transpose(*a.dims).values for p in loaded]
            batch[a.name] = torch.from_numpy(np.stack(values))
        patches = [self.generator._batch_selectors.selectors[i][0] for i in indices]
        anchors = [
            [p[d].start + lead(d, p[d].stop - p[d].start) for d in self.workload.anchor_dims]
            for p in patches
        ]
        batch[ANCHOR] = torch.tensor(anchors)
        return batch


def open(workload: Workload, store: Path, cores: int) -> Stream:
    from torch.utils.data import DataLoader

    dataset: Any = PatchDataset(workload, store)
    loader = DataLoader(
        dataset,
        batch_size=workload.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=cores,
        multiprocessing_context="spawn",
        persistent_workers=True,
        prefetch_factor=3,
        collate_fn=as_is,
    )
    return Stream(forever(loader), ahead=3 * cores, cycle=cores)
