"""Which times of which sites have a series without NaN."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from superbatch.archive.arrays import Array

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Arrays are read in pieces of about so many values, which stay in the processor's cache.
_PIECE = 1 << 20


def missing(array: Array, kept: tuple[int, ...]) -> Bools:
    """Where an array has a NaN, over all dimensions but those kept; the whole array is read.

    Returns
    -------
    bool array
        Its dimensions are those of ``kept``, in their order there.
    """
    if array.dtype.kind != "f":
        return np.zeros(tuple(array.shape[d] for d in kept), dtype=bool)
    found = np.empty([array.shape[d] for d in sorted(kept)], dtype=bool)
    along = kept[0]
    others = tuple(d for d in range(len(array.shape)) if d not in kept)
    place = sorted(kept).index(along)
    raw = values = None
    for low, high in _pieces(array, along):
        box = tuple((low, high) if d == along else (0, n) for d, n in enumerate(array.shape))
        shape = tuple(b - a for a, b in box)
        if raw is None or values is None or raw.shape != shape:
            raw, values = np.empty(shape, array.raw_dtype), np.empty(shape, array.dtype)
        array.decode(array.read(box, raw), values)
        into = tuple(slice(low, high) if d == place else slice(None) for d in range(found.ndim))
        found[into] = np.isnan(values).any(axis=others)
    return found.transpose([sorted(kept).index(d) for d in kept])


def _pieces(array: Array, along: int) -> list[tuple[int, int]]:
    """Parts of a dimension: of whole chunks, or of any length where nothing has to be decompressed."""
    length = array.shape[along]
    rows = max(1, _PIECE // max(1, int(np.prod(array.shape)) // length))
    if array.decoded_bytes(tuple((0, min(n, 1)) for n in array.shape)):
        chunks = array.chunks[along]
        borders = chunks.start(np.arange(chunks.count + 1))
        wanted = np.searchsorted(borders, np.arange(rows, length + rows, rows), side="left")
        edges = np.unique([0, *borders[np.minimum(wanted, chunks.count)].tolist()])
    else:
        edges = np.unique([*range(0, length, rows), length])
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def whole_windows(gone: Bools, position: Ints, low: int, high: int) -> Bools:
    """Whether the window around each position has nothing missing, for every column.

    Parameters
    ----------
    gone : bool array, shape (times, columns)
    position : int64 array, shape (anchors,)
        The array's own position for each anchor time.
    low, high : int
        First position of the window relative to it, and one past the last.

    Returns
    -------
    bool array, shape (anchors, columns)
        True where the window is not inside of the array: that is for others to rule out.
    """
    length, width = gone.shape[0], high - low
    if width > length:
        return np.ones((len(position), gone.shape[1]), dtype=bool)
    # Eight columns in a byte; then pairs of neighbours, pairs of pairs and so on.
    there = np.packbits(~gone, axis=1)
    span = 1
    while 2 * span <= width:
        there = there[:-span] & there[span:]
        span *= 2
    if span < width:
        there = there[: length - width + 1] & there[width - span :]
    begin = position + low
    inside = (begin >= 0) & (begin <= length - width)
    whole = there[np.clip(begin, 0, length - width)]
    whole[~inside] = 0xFF
    return np.unpackbits(whole, axis=1, count=gone.shape[1]).view(bool)
