"""scDataset: blocks of neighbouring samples, fetched together through its callbacks.

The collection is a table of random windows, ordered by place in the archive, which is what
scDataset relies on: neighbours in the table lie in the same chunks. Its fetch callback reads the
box around each block once and cuts the block's windows out of it.

Blocks make it as fast, and its samples as alike, as one likes. This peer is set to the same
diversity as superbatch: the smallest blocks that decode no more bytes for a sample than the
workload's superbatch, and fetches as large as a superbatch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ANCHOR, TABLE, Stream, empty_batch, forever
from benchmarks.workloads import Index, Workload

NAME = "scDataset"
ACCESS = "blocks"
TUNING = (
    "a worker per core, spawned; BlockShuffling with the smallest blocks that decode no more bytes "
    "per sample than superbatch, the workers' fetches together as large as a superbatch, "
    "zarrs pipeline in the callback"
)
SOURCE = (
    "https://scdataset.github.io/stable/generated/scdataset.scDataset.html, "
    "https://arxiv.org/html/2506.01883v2"
)

LARGEST_BLOCK = 1024


def cannot(workload: Workload) -> str | None:
    return "the store is empty" if workload.absent else None


class Windows:
    """The collection: windows at random anchors, those of one chunk side by side."""

    def __init__(self, workload: Workload, store: Path, seed: int = 0) -> None:
        self.workload, self.store = workload, store
        self.arrays: dict[str, Any] | None = None
        anchors = workload.anchors(TABLE, seed)
        ref = workload.reference
        chunks = [dict(zip(ref.dims, ref.chunks, strict=True))[d] for d in workload.anchor_dims]
        # By chunk first; within a chunk by position, so that few blocks reach into the next one.
        keys = [*anchors.T[::-1], *(anchors // chunks).T[::-1]]
        self.anchors = anchors[np.lexsort(keys)]

    def __len__(self) -> int:
        return len(self.anchors)

    def __getitem__(self, index: Any) -> Any:
        return self.anchors[index]

    def box(self, anchors: np.ndarray) -> dict[str, Index]:
        """The smallest box that holds all windows at these anchors, by array."""
        low = self.workload.indices(anchors.min(axis=0))
        high = self.workload.indices(anchors.max(axis=0))
        return {
            name: tuple(slice(a.start, b.stop) for a, b in zip(low[name], high[name], strict=True))
            for name in low
        }

    def decoded_bytes_per_sample(self, block: int) -> float:
        """Bytes decoded for a sample at this block size, from 200 blocks of the table."""
        rng = np.random.default_rng(0)
        blocks = rng.integers(0, len(self) // block, 200)
        boxes = [self.box(self.anchors[b * block : (b + 1) * block]) for b in blocks]
        return self.workload.decoded_bytes(boxes) / (len(boxes) * block)


def equally_diverse_block(windows: Windows) -> int:
    """The smallest block size that decodes no more for a sample than superbatch does."""
    workload = windows.workload
    allowed = workload.superbatch_decoded_bytes / workload.samples
    block = 1
    while block < LARGEST_BLOCK and windows.decoded_bytes_per_sample(block) > allowed:
        block = max(block + 1, int(block * 1.25))
    return block


class Fetch:
    """Fetch callback: reads the box around each block, gives back the stacked windows."""

    def __init__(self, block: int) -> None:
        self.block = block

    def __call__(self, windows: Windows, indices: np.ndarray) -> dict[str, np.ndarray]:
        import zarr

        if windows.arrays is None:
            zarr.config.set(
                {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": 1}
            )
            windows.arrays = {
                a.name: zarr.open_array(windows.store / a.name, mode="r")
                for a in windows.workload.arrays
            }
        indices = np.asarray(indices)
        anchors = windows.anchors[indices]
        out: dict[str, np.ndarray] = {
            **empty_batch(windows.workload, len(indices)),
            ANCHOR: anchors,
        }
        for run in self._runs(indices):
            box = windows.box(anchors[run])
            for array in windows.workload.arrays:
                data = windows.arrays[array.name][box[array.name]]
                for k in range(run.start, run.stop):
                    wanted = windows.workload.indices(anchors[k])[array.name]
                    out[array.name][k] = data[
                        tuple(
                            slice(w.start - b.start, w.stop - b.start)
                            for w, b in zip(wanted, box[array.name], strict=True)
                        )
                    ]
        return out

    def _runs(self, indices: np.ndarray) -> Iterator[slice]:
        """The sorted indices, block by block of the table."""
        edges = np.flatnonzero(np.diff(indices // self.block)) + 1
        for a, b in itertools.pairwise([0, *edges.tolist(), len(indices)]):
            yield slice(a, b)


def pick(fetched: dict[str, np.ndarray], indices: np.ndarray) -> dict[str, Any]:
    """Batch callback: rows of the fetched samples."""
    import torch

    return {name: torch.from_numpy(values[indices]) for name, values in fetched.items()}


def stream(workload: Workload, windows: Windows, cores: int, block: int, fetch: int) -> Stream:
    """scDataset under a DataLoader, ``fetch`` samples at a time."""
    from scdataset import BlockShuffling, scDataset
    from torch.utils.data import DataLoader

    factor = max(1, fetch // workload.batch_size)
    dataset = scDataset(
        windows,
        BlockShuffling(block_size=block, drop_last=True),
        batch_size=workload.batch_size,
        fetch_factor=factor,
        drop_last=True,
        fetch_callback=Fetch(block),
        batch_callback=pick,
        seed=0,
    )
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=cores,
        multiprocessing_context="spawn",
        persistent_workers=True,
        prefetch_factor=2,
    )
    cycle = factor * cores
    return Stream(
        forever(loader),
        ahead=cycle,
        cycle=cycle,
        decoded_bytes_per_sample=windows.decoded_bytes_per_sample(block),
    )


def open(workload: Workload, store: Path, cores: int) -> Stream:
    windows = Windows(workload, store)
    block = equally_diverse_block(windows)
    return stream(workload, windows, cores, block, workload.samples // cores)
