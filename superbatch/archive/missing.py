"""Which times of which sites have a series without NaN."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from superbatch.archive.arrays import Array

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Sites are taken in groups, so that the counts of a year of minutes stay small.
_COLUMNS = 64


def missing(array: Array, kept: tuple[int, ...]) -> Bools:
    """Where an array has a NaN, over all dimensions but those kept; the whole array is read.

    Returns
    -------
    bool array
        Its dimensions are those of ``kept``, in their order there.
    """
    raw = array.read(tuple((0, n) for n in array.shape))
    values = raw
    if array.dtype != array.raw_dtype or array.dtype.kind == "f":
        values = np.empty(array.shape, array.dtype)
        array.decode(raw, values)
    if values.dtype.kind != "f":
        return np.zeros(tuple(array.shape[d] for d in kept), dtype=bool)
    others = tuple(d for d in range(values.ndim) if d not in kept)
    left = [d for d in range(values.ndim) if d in kept]
    found = np.isnan(values).any(axis=others)
    return np.asarray(found.transpose([left.index(d) for d in kept]), dtype=bool)


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
    """
    length = gone.shape[0]
    begin = np.clip(position + low, 0, length)
    end = np.clip(position + high, 0, length)
    valid = np.empty((len(position), gone.shape[1]), dtype=bool)
    count = np.zeros((length + 1, _COLUMNS), dtype=np.int32)
    for first in range(0, gone.shape[1], _COLUMNS):
        part = gone[:, first : first + _COLUMNS]
        width = part.shape[1]
        np.cumsum(part, axis=0, out=count[1:, :width])
        valid[:, first : first + width] = count[end, :width] == count[begin, :width]
    return valid
