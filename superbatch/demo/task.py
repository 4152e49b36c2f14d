"""What the demo trains on: windows of one array, a part of which is held out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr


@dataclass(frozen=True)
class Task:
    """One array, how windows are cut from it, and what is predicted.

    Attributes
    ----------
    title : str
        What is learned, in a few words.
    where : str
        The store, as a person would name it.
    train : xarray.DataArray
        The part that windows for training are cut from.
    heldout : xarray.DataArray or None
        The part that the loss is measured on. No position of it is in ``train``, so that no window
        is in both. None where the array is too short to be divided.
    window : dict of str to int
        The length of a window along each dimension of the array.
    time : str or None
        The dimension whose last step is predicted from those before; None: the window itself is
        predicted, through a bottleneck.
    split : tuple of str
        What is trained on and what is held out, in a few words each.
    unit : str
        Unit of the array's values, or "".
    chunks : dict of str to int
        Length of a chunk along each dimension.
    """

    title: str
    where: str
    train: xr.DataArray
    heldout: xr.DataArray | None
    window: dict[str, int]
    time: str | None
    split: tuple[str, ...]
    unit: str
    chunks: dict[str, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.window[str(dim)] for dim in self.train.dims)

    @property
    def axis(self) -> int | None:
        """Position of ``time`` in ``shape``."""
        return None if self.time is None else list(self.train.dims).index(self.time)

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return int(np.prod(self.shape)) * self.train.dtype.itemsize


def starts(array: xr.DataArray, window: dict[str, int]) -> list[range]:
    """Where a window can start, for each dimension of the array."""
    return [range(array.sizes[dim] - window[str(dim)] + 1) for dim in array.dims]


def count(array: xr.DataArray, window: dict[str, int]) -> int:
    """How many different windows an array has."""
    return int(np.prod([len(along) for along in starts(array, window)], dtype=np.int64))


def cut(array: xr.DataArray, window: dict[str, int], start: tuple[int, ...]) -> npt.NDArray[Any]:
    """Read one window, straight from the array."""
    lengths = [window[str(dim)] for dim in array.dims]
    index = {dim: slice(at, at + n) for dim, at, n in zip(array.dims, start, lengths, strict=True)}
    return np.asarray(array.isel(index).values)


def heldout_windows(
    task: Task, most: int = 128, seconds: float = 5.0, seed: int = 0
) -> npt.NDArray[Any] | None:
    """Read the windows that the loss is measured on.

    All of them where there are at most ``most``; else as many, drawn without replacement, as
    are read within ``seconds``, since each may cost the decoding of whole chunks. They are read
    with xarray, not with superbatch, so that what judges does not depend on what is shown.

    Returns
    -------
    ndarray of shape (windows, \\*task.shape), or None where nothing is held out
    """
    if task.heldout is None:
        return None
    began = time.monotonic()
    windows: list[npt.NDArray[Any]] = []
    for start in _order(starts(task.heldout, task.window), most, seed):
        windows.append(cut(task.heldout, task.window, start))
        if time.monotonic() - began > seconds:
            break
    return np.stack(windows)


def _order(ranges: list[range], most: int, seed: int) -> Iterator[tuple[int, ...]]:
    total = int(np.prod([len(along) for along in ranges], dtype=np.int64))
    if total <= most:
        yield from product(*ranges)
        return
    rng = np.random.default_rng(seed)
    # the few that are drawn twice from so many are left out
    flat = np.unique(rng.integers(0, total, size=most))
    for at in rng.permutation(flat):
        yield tuple(int(i) for i in np.unravel_index(at, [len(along) for along in ranges]))
