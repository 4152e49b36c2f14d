"""The stores that the workloads read: generated once, cached on disk, the same on every machine.

Content is a smooth field that moves along the first dimension, in 10-bit counts as a satellite's
radiometer gives them, plus four bits of noise per value: zstd at its default level halves it, and
no two windows are alike. Beside the arrays, ``<dim>_position`` holds 0, 1, 2, … along each
dimension.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from benchmarks.workloads import TIME, Array, Workload, position_array

VERSION = 2
"""Raised when the content or the layout changes, so that no old store is read."""

AMPLITUDE = 200.0
NOISE_BITS = 4


def cache_dir() -> Path:
    """Where stores are kept unless the user says otherwise: the user's cache directory."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "superbatch" / "benchmarks"


def make(workload: Workload, cache: Path | None = None, threads: int | None = None) -> Path:
    """Path of the workload's store, which is generated where it is not there yet.

    The store is written under a temporary name and renamed when it is complete, so that a run that
    was interrupted leaves nothing that looks like a store.
    """
    root = cache or cache_dir()
    path = root / f"{workload.store}-v{VERSION}.zarr"
    if path.exists():
        return path
    root.mkdir(parents=True, exist_ok=True)
    part = root / f".{workload.store}-{uuid.uuid4().hex[:8]}.part"
    try:
        _write(workload, part, threads or len(os.sched_getaffinity(0)))
        try:
            part.rename(path)
        except OSError:  # another run was faster: its store is as good
            if not path.exists():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def _write(workload: Workload, path: Path, threads: int) -> None:
    group = zarr.create_group(path, zarr_format=3, attributes={"workload": workload.name})
    for array in workload.arrays:
        target = group.create_array(
            array.name,
            shape=array.shape,
            chunks=array.chunks,
            shards=array.shards,
            dtype=array.dtype,
            compressors=ZstdCodec(level=0),
            fill_value=0,
            dimension_names=array.dims,
        )
        if not workload.absent:
            _fill(target, array, threads)
    if not workload.absent:
        if TIME in workload.sizes:
            times = group.create_array(
                TIME,
                shape=(workload.sizes[TIME],),
                chunks=(workload.sizes[TIME],),
                dtype="int64",
                dimension_names=(TIME,),
                attributes={"units": "minutes since 2020-01-01", "calendar": "standard"},
            )
            times[:] = 5 * np.arange(workload.sizes[TIME])
        for dim in workload.anchor_dims:
            size = workload.sizes[dim]
            position = group.create_array(
                position_array(dim),
                shape=(size,),
                chunks=(size,),
                dtype="int32",
                dimension_names=(dim,),
            )
            position[:] = np.arange(size, dtype="int32")


def _fill(target: zarr.Array, array: Array, threads: int) -> None:
    """Write the array one run of whole chunks (or shards) along the first dimension at a time."""
    step = (array.shards or array.chunks)[0]
    slabs = [slice(a, min(a + step, array.shape[0])) for a in range(0, array.shape[0], step)]

    def write(slab: slice) -> None:
        target[slab] = content(array, slab)

    # One slab in each thread, so that generating and compressing both use all cores.
    with ThreadPoolExecutor(threads) as pool, zarr.config.set({"async.concurrency": 2}):
        list(pool.map(write, slabs))


def content(array: Array, slab: slice) -> np.ndarray:
    """Values of a slab along the first dimension, whatever the rest of the array is."""
    out = np.empty((slab.stop - slab.start, *array.shape[1:]), array.dtype)
    for k, position in enumerate(range(slab.start, slab.stop)):
        out[k] = _step(array, position)
    return out


def _step(array: Array, position: int) -> np.ndarray:
    """One step along the first dimension: waves that move, plus noise of its own."""
    rest = array.shape[1:]
    size = int(np.prod(rest))
    key = zlib.crc32(f"{array.name}/{position}".encode())
    noise = np.random.SFC64(key).random_raw(-(-size // 16))
    # Every byte of the random words gives two values of NOISE_BITS bits.
    nibbles = noise.view(np.uint8)
    values = np.empty(2 * nibbles.size, np.int16)
    values[0::2] = nibbles & 15
    values[1::2] = nibbles >> NOISE_BITS
    field = np.full(rest or (1,), 512.0, np.float32)
    wave = np.ones((), np.float32)
    for k, n in enumerate(rest):
        phase = 0.02 * position * (-1) ** k
        line = np.sin(np.linspace(0, 5 + k, n, dtype=np.float32) + np.float32(phase))
        wave = wave[..., None] * line if k else line
    field += AMPLITUDE * wave
    counts = field.astype(np.int16) + values[:size].reshape(field.shape)
    if not rest:
        counts = counts.reshape(())
    if array.dtype.startswith("int"):
        return counts.astype(array.dtype)
    return counts * np.float32(0.25)
