"""Copying windows out of a block, a run of neighbouring bytes at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def copy_windows(
    block: npt.NDArray[Any],
    corners: Ints,
    size: Sequence[int],
    rows: Ints,
    out: npt.NDArray[Any],
) -> None:
    """Copy windows of a block to rows of an array, byte by byte.

    NumPy copies a strided window value by value along the last dimension. Here that dimension, with those
    behind which are taken whole, is one item: 1.5 to 1.9 times as fast for rows of 32 to 96 bytes.

    Parameters
    ----------
    block : array
        C-contiguous.
    corners : int64 array, shape (n, block.ndim)
        First position of each window.
    size : sequence of int
        Shape of a window in the block.
    rows : int64 array, shape (n,)
    out : array, shape (m, ...)
        C-contiguous, of the block's type; a row holds as many values as a window.

    Examples
    --------
    >>> block, out = np.arange(12).reshape(3, 4), np.zeros((1, 2, 2), int)
    >>> copy_windows(block, np.array([[1, 2]]), (2, 2), np.array([0]), out)
    >>> out[0].tolist()
    [[6, 7], [10, 11]]
    """
    last = block.ndim - 1
    while last > 0 and size[last] == block.shape[last]:
        last -= 1
    run = math.prod(size[last:]) * block.itemsize
    if not run or not math.prod(size[:last]):
        return
    item = np.dtype(f"V{run}")
    shape, strides = tuple(size[:last]), block.strides[:last]
    memory = block.reshape(-1).view(np.uint8)
    target = out.reshape(len(out), -1).view(item).reshape(len(out), *shape)
    offsets = corners @ np.array(block.strides, dtype=np.int64)
    for row, offset in zip(rows.tolist(), offsets.tolist(), strict=True):
        target[row] = np.ndarray(shape, item, memory, offset, strides)
