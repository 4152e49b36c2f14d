"""The workloads: which arrays, in which chunks, and what one sample is cut from them.

Every workload keeps all of its arrays on one grid: the arrays share the dimensions that they are
cut along, and one anchor gives the first position of every window. Length and space can be scaled
down, for ``--quick`` and for tests; chunk and window shapes along time stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Index = tuple[slice, ...]

TIME = "time"
"""The dimension that has dates, in stores that hold data."""


@dataclass(frozen=True)
class Array:
    """One array of a store, and the window that a sample takes from it.

    Attributes
    ----------
    dims, shape, chunks : tuple
        Names and sizes of the dimensions. ``chunks`` are the pieces that are decoded as one.
    window : dict of str to int
        Positions taken along a dimension: from the anchor on in time, centred on it in space, as
        ``superbatch.Window`` takes them. A dimension not named is taken whole.
    shards : tuple of int, optional
        Shape of a shard, where several chunks share one file.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    window: Mapping[str, int]
    shards: tuple[int, ...] | None = None

    @property
    def window_shape(self) -> tuple[int, ...]:
        return tuple(
            self.window.get(dim, size) for dim, size in zip(self.dims, self.shape, strict=True)
        )

    @property
    def pieces(self) -> tuple[int, ...]:
        """What is cheap to read as one: a shard, or a chunk."""
        return self.shards or self.chunks

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.window_shape) * np.dtype(self.dtype).itemsize

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunks) * np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def index(self, anchor: Mapping[str, int]) -> Index:
        """Slices of the window at an anchor (a position by dimension)."""
        slices = []
        for dim, size in zip(self.dims, self.shape, strict=True):
            start, length = 0, size
            if dim in self.window:
                length = self.window[dim]
                start = anchor[dim] - lead(dim, length)
            slices.append(slice(start, start + length))
        return tuple(slices)

    def chunks_of(self, index: Index) -> list[tuple[int, ...]]:
        """Grid positions of the chunks that a box of slices touches."""
        ranges = [
            range(s.start // c, -(-s.stop // c)) for s, c in zip(index, self.chunks, strict=True)
        ]
        grids = np.meshgrid(*[np.asarray(r) for r in ranges], indexing="ij")
        return list(zip(*[g.ravel().tolist() for g in grids], strict=True))

    def chunk_count(self, index: Index) -> int:
        return math.prod(
            -(-s.stop // c) - s.start // c for s, c in zip(index, self.chunks, strict=True)
        )


@dataclass(frozen=True)
class Workload:
    """What is loaded, and the superbatch that it is loaded in.

    Attributes
    ----------
    arrays : tuple of Array
        The first one is the reference: ``chunks_per_sequence`` counts its chunks.
    samples, sequences, chunks_per_sequence
        As in ``superbatch.ArchiveSource``.
    store : str
        Name of the store; workloads of the same store share it on disk.
    absent : bool
        The store holds metadata and no chunks.
    """

    name: str
    title: str
    arrays: tuple[Array, ...]
    batch_size: int
    samples: int
    sequences: int
    chunks_per_sequence: int | Mapping[str, int]
    store: str
    note: str = ""
    absent: bool = False
    scale: Mapping[str, float] = field(default_factory=dict)

    @property
    def reference(self) -> Array:
        return self.arrays[0]

    @property
    def anchor_dims(self) -> tuple[str, ...]:
        """The dimensions that samples are cut along, the reference's first."""
        return tuple(dict.fromkeys(dim for a in self.arrays for dim in a.dims if dim in a.window))

    @property
    def sizes(self) -> dict[str, int]:
        return {d: n for a in self.arrays for d, n in zip(a.dims, a.shape, strict=True)}

    @property
    def sample_bytes(self) -> int:
        return sum(a.sample_bytes for a in self.arrays)

    def anchor_range(self, box: Mapping[str, Index] | None = None) -> dict[str, range]:
        """Anchors along each dimension at which all windows fit into the arrays, or into a box."""
        found = {}
        for dim in self.anchor_dims:
            low, high = 0, self.sizes[dim]
            for a in self.arrays:
                if dim in a.window:
                    whole = slice(0, self.sizes[dim])
                    inside = box[a.name][a.dims.index(dim)] if box else whole
                    before = lead(dim, a.window[dim])
                    low = max(low, inside.start + before)
                    high = min(high, inside.stop - a.window[dim] + before + 1)
            found[dim] = range(low, high)
        return found

    def anchors(
        self, count: int, seed: int = 0, box: Mapping[str, Index] | None = None
    ) -> np.ndarray:
        """Random anchors, any that fits with equal chance: int64 (count, anchor dims)."""
        rng = np.random.default_rng(seed)
        ranges = self.anchor_range(box).values()
        return np.stack([rng.integers(r.start, r.stop, count) for r in ranges], axis=1)

    def indices(self, anchor: np.ndarray) -> dict[str, Index]:
        """What one sample is: slices by array name."""
        at = dict(zip(self.anchor_dims, (int(v) for v in anchor), strict=True))
        return {a.name: a.index(at) for a in self.arrays}

    def sequence_shape(self) -> dict[str, int]:
        """Extent of one chunk sequence along each anchor dimension, in positions.

        Along a dimension for which ``chunks_per_sequence`` gives no number, one chunk of the
        reference. Where there are shards, they are what is counted.
        """
        first, ref = self.anchor_dims[0], self.reference
        per = self.chunks_per_sequence
        per = {first: per} if isinstance(per, int) else per
        chunks = dict(zip(ref.dims, ref.pieces, strict=True))
        return {
            d: min(per.get(d, 1) * chunks.get(d, self.sizes[d]), self.sizes[d])
            for d in self.anchor_dims
        }

    def sequence_boxes(self, seed: int = 0) -> list[dict[str, Index]]:
        """The chunk sequences of one superbatch, drawn at random on the reference's chunk grid.

        An independent draw with the same geometry as superbatch's own, for the decode floor.
        """
        rng = np.random.default_rng(seed)
        extent = self.sequence_shape()
        chunk = dict(zip(self.reference.dims, self.reference.pieces, strict=True))
        boxes = []
        for _ in range(self.sequences):
            at = {}
            for d, n in extent.items():
                step = chunk.get(d, n)
                runs = max(1, (self.sizes[d] - n) // step + 1)
                at[d] = int(rng.integers(runs)) * step
            boxes.append(
                {
                    a.name: tuple(
                        slice(at[d], min(at[d] + extent[d], n)) if d in a.window else slice(0, n)
                        for d, n in zip(a.dims, a.shape, strict=True)
                    )
                    for a in self.arrays
                }
            )
        return boxes

    def decoded_bytes(self, boxes: list[dict[str, Index]]) -> int:
        """Bytes that come out of the decoder when each box is read on its own."""
        return sum(a.chunk_count(box[a.name]) * a.chunk_bytes for box in boxes for a in self.arrays)

    @property
    def superbatch_decoded_bytes(self) -> int:
        """Bytes decoded for one superbatch when every sequence is loaded once."""
        return self.decoded_bytes(self.sequence_boxes())

    # The part below is how the workload looks to superbatch; peers do not use it.

    def open(self, store: Path) -> dict[str, Any]:
        """The arrays as a user opens them: ``xarray.DataArray`` by name."""
        import xarray

        data = xarray.open_zarr(store, chunks=None, consolidated=False)
        return {a.name: data[a.name] for a in self.arrays}

    def source(self, store: Path, *, where: bool = False, **changes: Any) -> Any:
        """The ``superbatch.ArchiveSource`` of this workload.

        ``where=True`` adds the position arrays of the store to each sample, so that a served sample
        can be compared with a direct read at its anchor.
        """
        import xarray

        import superbatch

        windows = {
            a.name: superbatch.Window(data, **a.window)
            for a, data in zip(self.arrays, self.open(store).values(), strict=True)
        }
        if where:
            data = xarray.open_zarr(store, chunks=None, consolidated=False)
            for dim in self.anchor_dims:
                name = position_array(dim)
                windows[name] = superbatch.Window(data[name], **{dim: 1})
        per = self.chunks_per_sequence
        settings = {
            "samples": self.samples,
            "sequences": self.sequences,
            "chunks_per_sequence": per if isinstance(per, int) else dict(per),
        }
        return superbatch.ArchiveSource(windows, **{**settings, **changes})


def lead(dim: str, length: int) -> int:
    """Positions of a window before its anchor: none in time, half of it in space."""
    return 0 if dim == TIME else length // 2


def position_array(dim: str) -> str:
    """Name of the array that holds 0, 1, 2, … along a dimension."""
    return f"{dim}_position"


def _steps(full: int, length: float, least: int, multiple: int) -> int:
    """A scaled length: a whole number of chunks, and room for some sequences."""
    return max(least, math.ceil(full * length / multiple) * multiple)


def _superbatch(samples: int, sequences: int, length: float, batch_size: int) -> dict[str, int]:
    """Samples and sequences of a scaled superbatch: the same number of samples per sequence."""
    kept = max(2, round(sequences * min(1.0, length * 2)))
    per = samples // sequences
    return {"samples": max(batch_size, kept * per // batch_size * batch_size), "sequences": kept}


def _scaled(length: float, space: int) -> dict[str, Any]:
    """Suffix of the store's name, and what is recorded, for a scaled workload."""
    tag = "" if (length, space) == (1, 1) else f"-{length:g}-{space}"
    return {"tag": tag, "scale": {"length": length, "space": space}}


def w1(length: float = 1.0, space: int = 1) -> Workload:
    """27 MB chunks, small crops."""
    t, y, x, crop = _steps(3600, length, 144, 36), 704 // space, 548 // space, 128 // space
    s = _scaled(length, space)
    array = Array(
        "field",
        ("time", "y", "x"),
        (t, y, x),
        (36, y, x),
        "int16",
        {"time": 2, "y": crop, "x": crop},
    )
    return Workload(
        "w1",
        "small crops from 27 MB chunks",
        (array,),
        batch_size=8,
        chunks_per_sequence=3,
        **_superbatch(4096, 32, length, 8),
        store="w1" + s["tag"],
        scale=s["scale"],
    )


def w1_fine(length: float = 1.0, space: int = 1) -> Workload:
    """The array of W1 in chunks of one time step: what one re-chunks to for random access."""
    base = w1(length, space)
    array = base.reference
    fine = Array(array.name, array.dims, array.shape, (1, *array.chunks[1:]), "int16", array.window)
    return Workload(
        "w1-fine",
        "W1 re-chunked to one time step",
        (fine,),
        batch_size=8,
        chunks_per_sequence=108,
        samples=base.samples,
        sequences=base.sequences,
        store=base.store.replace("w1", "w1-fine", 1),
        scale=base.scale,
    )


def w2(length: float = 1.0, space: int = 1) -> Workload:
    """Multi-modal: a satellite array, ten variables of forecasts, a series of 940 sites."""
    t, n, crop, sites = _steps(240, length, 72, 12), 96 // space, 32 // space, 940 // space
    s = _scaled(length, space)
    satellite = Array(
        "sat",
        ("time", "channel", "y", "x"),
        (t, 12, n, n),
        (12, 12, n, n),
        "int16",
        {"time": 19, "y": crop, "x": crop},
    )
    forecasts = tuple(
        Array(
            f"nwp{k}",
            ("time", "step", "y", "x"),
            (t, 20, n, n),
            (2, 20, n, n),
            "int16",
            {"time": 1, "y": crop, "x": crop},
        )
        for k in range(10)
    )
    series = Array("pv", ("time", "site"), (t, sites), (120, sites), "float32", {"time": 19})
    return Workload(
        "w2",
        "satellite, ten forecast variables, 940 sites",
        (satellite, *forecasts, series),
        batch_size=32,
        chunks_per_sequence=3,
        **_superbatch(512, 8, length, 32),
        store="w2" + s["tag"],
        scale=s["scale"],
        note="on one grid: a forecast run for every satellite step",
    )


def w3(length: float = 1.0, space: int = 1) -> Workload:
    """What a PV forecaster's sample is today."""
    t, n, crop = _steps(480, length, 96, 12), 144 // space, 24 // space
    s = _scaled(length, space)

    def grid(name: str, channels: int, steps: int) -> Array:
        return Array(
            name,
            ("time", f"{name}_channel", "y", "x"),
            (t, channels, n, n),
            (12, channels, n, n),
            "float32",
            {"time": steps, "y": crop, "x": crop},
        )

    generation = Array("generation", ("time",), (t,), (240,), "float32", {"time": 19})
    return Workload(
        "w3",
        "a PV forecaster's sample",
        (grid("sat", 7, 11), grid("nwp_a", 10, 17), grid("nwp_b", 10, 17), generation),
        batch_size=8,
        chunks_per_sequence=4,
        **_superbatch(512, 16, length, 8),
        store="w3" + s["tag"],
        scale=s["scale"],
        note="on one grid: all arrays in the satellite's time steps",
    )


def w4(length: float = 1.0, space: int = 1) -> Workload:
    """Volumes: small boxes out of a cube of cubic chunks."""
    edge = 1000 // space
    chunk, box = 64 // space, (64 // space, 64 // space, 8)
    s = _scaled(length, space)
    z = max(3 * chunk, round(edge * length))
    array = Array(
        "volume",
        ("z", "y", "x"),
        (z, edge, edge),
        (chunk, chunk, chunk),
        "float32",
        dict(zip(("z", "y", "x"), box, strict=True)),
    )
    return Workload(
        "w4",
        "boxes out of a volume in 64-cubed chunks",
        (array,),
        batch_size=8,
        chunks_per_sequence={"z": 4, "y": 4, "x": 2},
        **_superbatch(2048, 16, length, 8),
        store="w4" + s["tag"],
        scale=s["scale"],
    )


def w5(length: float = 1.0, space: int = 1) -> Workload:
    """Zarr v3 shards of 64 inner chunks."""
    t, crop = _steps(1152, length, 96, 32), 128 // space
    chunk = (8, 176 // space, 137 // space)
    s = _scaled(length, space)
    shard = tuple(4 * c for c in chunk)
    array = Array(
        "field",
        ("time", "y", "x"),
        (t, shard[1], shard[2]),
        chunk,
        "int16",
        {"time": 2, "y": crop, "x": crop},
        shards=shard,
    )
    return Workload(
        "w5",
        "shards of 64 inner chunks",
        (array,),
        batch_size=8,
        chunks_per_sequence=1,
        **_superbatch(2048, 16, length, 8),
        store="w5" + s["tag"],
        scale=s["scale"],
    )


def length(times: int = 1, space: int = 1, tail: int = 3600) -> Workload:
    """W1's geometry with no chunk present, ``times`` as long: only planning and opening grow."""
    y, x, crop = 704 // space, 548 // space, 128 // space
    array = Array(
        "field",
        ("time", "y", "x"),
        (tail * times, y, x),
        (36, y, x),
        "int16",
        {"time": 2, "y": crop, "x": crop},
    )
    return Workload(
        "l",
        "the length of the archive",
        (array,),
        batch_size=8,
        samples=4096,
        sequences=32,
        chunks_per_sequence=3,
        store=f"l-{tail * times}-{space}",
        absent=True,
        scale={"times": times, "space": space},
    )


WORKLOADS: dict[str, Callable[..., Workload]] = {
    "w1": w1,
    "w1-fine": w1_fine,
    "w2": w2,
    "w3": w3,
    "w4": w4,
    "w5": w5,
    "l": length,
}
