"""Other loaders, each in one small module, behind one protocol.

A peer is a module with these names:

``NAME``, ``ACCESS``
    What the table calls it, and how it draws samples: ``"random"`` (each sample anywhere, on its
    own), ``"blocks"``, ``"grid"``, ``"memory"``, ``"superbatch"``.
``TUNING``, ``SOURCE``
    How it is set up, and the documentation that says so.
``cannot(workload)``
    Why it cannot do the workload, or None.
``open(workload, store, cores)``
    A `Stream` of batches, drawn at random, endless.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.contest import Clock
from benchmarks.workloads import Index, Workload

PEERS = (
    "in_memory",
    "tensorstore_map",
    "zarrs_map",
    "xbatcher_map",
    "scdataset_blocks",
    "scdataset_suggested",
    "lazy_selections",
)

ANCHOR = "anchor"
"""Key under which each batch says where its samples were cut: int64 (batch, anchor dims)."""

TABLE = 200_000
"""Random anchors that a peer draws from."""


@dataclass
class Stream:
    """Batches of a peer: dicts of tensors, the anchors under `ANCHOR`.

    Attributes
    ----------
    ahead, cycle
        See `benchmarks.contest.Clock`.
    decoded_bytes_per_sample : float, optional
        Computed from the boxes that it reads, where it has no cache.
    """

    batches: Iterator[dict[str, Any]]
    ahead: int
    cycle: int = 1
    decoded_bytes_per_sample: float | None = None
    close: Callable[[], None] = lambda: None


def load(name: str) -> ModuleType:
    """The peer's module; ImportError where its package is not installed."""
    return importlib.import_module(f"benchmarks.peers.{name}")


class PeerEntrant:
    """A peer in its contestant's process."""

    def __init__(self, name: str, workload: Workload, store: Path, cores: int) -> None:
        self.workload, self.store = workload, store
        self.stream = load(name).open(workload, store, cores)
        self.clock = Clock(
            self.stream.batches, workload.batch_size, self.stream.ahead, self.stream.cycle
        )

    def turn(self, what: str, **settings: Any) -> Any:
        if what == "fresh":
            return self.clock.run(settings["seconds"], machine.cpu_seconds)
        if what == "check":
            return check_batch(next(self.stream.batches), self.workload, self.store)
        if what == "about":
            return {"decoded_bytes_per_sample": self.stream.decoded_bytes_per_sample}
        raise ValueError(f"no turn named {what!r}")

    def close(self) -> None:
        self.stream.close()


def check_batch(batch: dict[str, Any], workload: Workload, store: Path) -> int:
    """Compare a batch with direct reads by zarr-python's own pipeline; returns samples compared.

    Raises
    ------
    ValueError
        When a value differs, or the batch is not of the workload's size, with the place.
    """
    import zarr

    anchors = np.asarray(batch[ANCHOR])
    if anchors.shape != (workload.batch_size, len(workload.anchor_dims)):
        raise ValueError(f"anchors have shape {anchors.shape}")
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        group = zarr.open_group(store, mode="r")
        for array in workload.arrays:
            values = np.asarray(batch[array.name])
            if values.dtype != array.dtype:
                raise ValueError(f"{array.name} is {values.dtype}, stored as {array.dtype}")
            for k, anchor in enumerate(anchors):
                index = workload.indices(anchor)[array.name]
                direct = np.asarray(group[array.name][index])
                if values[k].shape != direct.shape or not np.array_equal(values[k], direct):
                    raise ValueError(f"{array.name} is wrong at anchor {anchor.tolist()}")
    return len(anchors)


class WindowDataset:
    """Map-style dataset over a table of random anchors: the base of the random-access peers.

    A subclass says how to open the arrays, once in each worker, and how to read a list of windows.
    PyTorch hands a whole batch of indices to ``__getitems__``.
    """

    def __init__(self, workload: Workload, store: Path, seed: int = 0) -> None:
        self.workload, self.store = workload, store
        self.anchors = workload.anchors(TABLE, seed)
        self.arrays: dict[str, Any] | None = None

    def open_arrays(self) -> dict[str, Any]:
        raise NotImplementedError

    def read(self, arrays: dict[str, Any], wanted: list[dict[str, Index]]) -> dict[str, Any]:
        """One tensor per array, the windows stacked."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.anchors)

    def __getitems__(self, indices: list[int]) -> dict[str, Any]:
        import torch

        if self.arrays is None:
            self.arrays = self.open_arrays()
        anchors = self.anchors[indices]
        batch = self.read(self.arrays, [self.workload.indices(a) for a in anchors])
        return {**batch, ANCHOR: torch.from_numpy(anchors)}


def as_is(batch: Any) -> Any:
    """Collate function for datasets that give whole batches."""
    return batch


def forever(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def empty_batch(workload: Workload, count: int) -> dict[str, Any]:
    """Room for a batch, as NumPy arrays."""
    return {a.name: np.empty((count, *a.window_shape), a.dtype) for a in workload.arrays}


def mean_decoded_bytes(workload: Workload, anchors: np.ndarray) -> float:
    """Bytes decoded per sample when each window is read on its own."""
    some = anchors[:500]
    return workload.decoded_bytes([workload.indices(a) for a in some]) / len(some)


def cache_bytes(workload: Workload) -> int:
    """Memory for a cache of decoded chunks: a tenth of the archive.

    The stores are small so that they can be made quickly; a cache that holds all of one would turn
    any loader into the in-memory one.
    """
    return sum(a.nbytes for a in workload.arrays) // 10
