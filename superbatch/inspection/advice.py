"""What is worth a word about a store and the settings, with what to write instead."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from superbatch.inspection.report import size

# Decoding slower than this on one core is worth a word, however busy the machine: zstd gives about
# 1 GB/s, bz2 and lzma 10 to 50 MB/s.
_SLOW = 0.1e9
# No codec is faster on one core: chunks were absent, and filled.
_FAST = 8e9
# Where random access decodes so many times what it uses, chunks are called hostile.
_HOSTILE = 50
# Where a second reading is so many times as fast, it came out of a cache.
_CACHED = 3
# Where a superbatch decodes so many times what its samples hold, more samples cost nearly nothing.
_UNUSED = 10
# Chunks below this cost more by their number than by what they hold; Zarr's guide on performance advises
# 1 MB or more, without compression.
_GOOD_CHUNK = 1_000_000
_SMALL_CHUNK = 100_000


def of_chunks(
    stored: Any, chunk: int, sample: int, touched: float, extents: dict[str, int]
) -> Iterator[str]:
    """On how the array is stored.

    Parameters
    ----------
    stored : Array
    chunk, sample : int
        Bytes of one decoded chunk, and of a sample.
    touched : float
        Bytes decoded to read one window by itself.
    extents : dict of str to int
        The window.
    """
    known = stored.describe()
    item = stored.raw_dtype.itemsize
    whole = math.prod(stored.shape) * item
    path = known.get("path")
    if path == "numpy":
        yield (
            "the values are in memory, as after .load() or .values, and have no chunks: they are drawn from as "
            "one; hand over what xr.open_zarr gave before it was loaded"
        )
    elif path in ("dask", "xarray"):
        yield (
            "the array is read through xarray or Dask, at about half the speed: open it with "
            "xr.open_zarr(..., chunks=None) and select before anything else is computed"
        )
    padded = stored.decoded_bytes(tuple((0, n) for n in stored.shape)) / max(whole, 1)
    if padded > 1.5:
        shape = "x".join(str(n) for n in known.get("chunks", ()))
        yield (
            f"reading all of it decodes {padded:.3g} times what it holds: its chunks of {shape} reach beyond the "
            "array, or beyond what was selected of it; chunks no longer than its dimensions would help"
        )
    if 0 < chunk < _SMALL_CHUNK and whole > 100 * chunk:
        yield (
            f"a chunk holds {size(chunk)}: opening one costs more than decoding it; chunks (or shards) of "
            f"{size(_GOOD_CHUNK)} or more are read several times as fast"
        )
    if sample and touched > _HOSTILE * sample:
        better = chunks_for(stored, extents)
        # On average, a window of w reaches into chunks of c with (w - 1 + c) positions.
        would = item * math.prod(
            min(extents.get(d, n) - 1 + better[d], n)
            for d, n in zip(stored.dims, stored.shape, strict=True)
        )
        told = (
            f"random access decodes {touched / sample:.0f} times what it uses; superbatches share a chunk among "
            "many samples"
        )
        if would < touched / 2:
            told += (
                f", and chunks of about {better} ({size(item * math.prod(better.values()))}) would make that "
                f"{would / sample:.0f} times, for every reader"
            )
        yield told
    if stored.raw_dtype == np.float64:
        yield "values are float64: float32 halves what is read and kept, if its digits do"
    elif stored.dtype == np.float64:
        yield "values become float64 by decoding: dtype='float32' in the Window halves a sample"


def chunks_for(stored: Any, extents: dict[str, int]) -> dict[str, int]:
    """Chunks near the window's size, but of at least 1 MB: below, each costs more than what it holds.

    The dimension that is shortest against the window is doubled until there is enough.
    """
    item = stored.raw_dtype.itemsize
    lengths: dict[str, int] = dict(zip(stored.dims, stored.shape, strict=True))
    chunks = {d: min(max(1, extents.get(d, n)), n) for d, n in lengths.items()}
    while item * math.prod(chunks.values()) < _GOOD_CHUNK:
        longer = [d for d, n in lengths.items() if chunks[d] < n]
        if not longer:
            break
        grown = min(longer, key=lambda d: (chunks[d] / extents.get(d, lengths[d]), -lengths[d]))
        chunks[grown] = min(2 * chunks[grown], lengths[grown])
    return chunks


def compressed(stored: Any) -> bool | None:
    """Whether chunks are compressed; None where that is not known."""
    codecs = stored.describe().get("codecs")
    if codecs is None:
        return None
    plain = {"bytes", "transpose", "sharding_indexed", "crc32c", "vlen-utf8"}
    return any(str(codec).lower() not in plain for codec in codecs)


def of_speed(stored: Any, chunk: int, speed: Any, cores: int) -> Iterator[str]:
    """On how fast it is read.

    Parameters
    ----------
    stored : Array
    chunk : int
        Bytes of one decoded chunk.
    speed : Speed
    cores : int
    """
    packed = compressed(stored)
    if packed is False:
        yield (
            "chunks are not compressed: zstd often halves what has to be read"
            + (
                f"; the {size(speed.decoding)}/s measured are copies out of the system's cache, and a disk or a "
                "network gives less"
                if speed.decoding
                else ""
            )
        )
    if speed.decoding is None:
        return
    a_core = speed.decoding / cores
    if packed and a_core < _SLOW and chunk >= _SMALL_CHUNK:
        yield (
            f"decoding gives {a_core / 1e6:.0f} MB/s on a core: zstd or lz4 would give 3 to 10 times that"
        )
    if packed and a_core > _FAST:
        yield (
            f"{size(a_core)}/s on a core is more than any codec gives: chunks that were read are absent or "
            "nearly constant, and others will be slower"
        )
    if speed.first is not None and speed.first < speed.decoding / _CACHED:
        yield (
            f"the first reading gave {size(speed.first)}/s, the second, out of a cache, {size(speed.decoding)}/s: "
            "what is not in the cache is limited by where the store lies"
        )


def of_settings(
    chosen: dict[str, Any], windows: int, plan: Any, decoded: float, sample: int
) -> Iterator[str]:
    """On samples and sequences.

    Parameters
    ----------
    chosen : dict
        The settings.
    windows : int
        Valid windows in the archive.
    plan : SuperbatchPlan
        A full superbatch.
    decoded : float
        Bytes decoded for each of its samples.
    sample : int
        Bytes of a sample.
    """
    samples = chosen["samples"]
    different = len(np.unique(plan.starts, axis=0))
    if samples > windows:
        yield (
            f"a superbatch of {samples:,} samples is drawn from {windows:,} windows, each about "
            f"{samples / windows:.3g} times: write samples={windows} or fewer, or a smaller window"
        )
    elif different < 0.7 * len(plan.starts):
        yield (
            f"of {len(plan.starts):,} samples in a superbatch only {different:,} differ, so few windows lie in its "
            f"sequences: write samples={different} or fewer, or more sequences"
        )
    elif sample and decoded > _UNUSED * sample:
        more = min(windows, int(samples * decoded / sample / 2))
        if more > 2 * samples:
            yield (
                f"a superbatch decodes {decoded / sample:.0f} times what its samples hold: more samples out of the "
                f"same chunks cost little; try samples={_round(more)} if they fit into memory"
            )


def of_memory(needed: int, free: int) -> Iterator[str]:
    """On memory: bytes that are predicted, and bytes that are free."""
    if needed > free:
        yield (
            f"{size(needed)} of memory are predicted, but {size(free)} are free here: give --memory (memory= of "
            f'ArchiveSource), such as "{max(1, int(free * 0.7 / 1e9))}GB", or fewer sequences or samples'
        )


def of_coordinates(array: Any) -> Iterator[str]:
    """On coordinates that are Dask arrays without being asked for: each selection may compute them."""
    for name, coord in getattr(array, "coords", {}).items():
        if coord.chunks is not None:
            yield (
                f"the coordinate {name!r} is a Dask array of {size(coord.nbytes)}, which is computed again for "
                f"every selection that touches it: array.drop_vars({name!r}), or "
                f"assign_coords({name}=array[{name!r}].load())"
            )


def _round(number: int) -> int:
    """Down to a power of two."""
    return 1 << max(0, number.bit_length() - 1)
