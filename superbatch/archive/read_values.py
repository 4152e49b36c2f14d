"""Reading through NumPy, xarray or Dask, where no Zarr array was found."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any

import numpy as np
import xarray as xr

from superbatch.archive.chunks import Chunks
from superbatch.archive.read_view import Box
from superbatch.archive.shared import SharedArray

# Smaller arrays are sent to each loader; a copy costs less than a map.
_LARGE = 1 << 20


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


class NumpyReader:
    """Reads an array that is in memory, and that travels to the loader with its values."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        self.raw_dtype = values.dtype.newbyteorder("=")
        self.chunks = tuple(Chunks.regular(n, max(n, 1)) for n in values.shape)
        self._shared: SharedArray | None = None
        address: int = values.__array_interface__["data"][0]
        # Holds as long as the values are alive, and they are as long as this reader is.
        self.identity: Hashable = ("numpy", address, values.shape, values.strides, values.dtype.str)

    def share(self) -> int | None:
        """Put large values into shared memory, where there is room.

        Returns
        -------
        int or None
            The descriptor that loaders have to inherit; None where the values travel with the reader.
        """
        if self._shared is None and self.values.nbytes >= _LARGE:
            try:
                self._shared = SharedArray(self.values)
            except OSError:
                return None
        return None if self._shared is None else self._shared.descriptor

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # Pickled, it is the values that the loader attaches to.
        shared = state.pop("_shared")
        if shared is not None:
            state["values"] = shared
        return {**state, "_shared": None}

    def read(self, box: Box, out: np.ndarray[Any, Any]) -> None:
        """Copy the values of a box into `out`."""
        out[...] = self.values[_slices(box)]

    def decoded_bytes(self, box: Box) -> int:
        """Nothing is decompressed."""
        return 0

    def describe(self) -> dict[str, Any]:
        """How the array is read, for people."""
        return {"path": "numpy"}


class XarrayReader:
    """Reads through xarray's own indexing: right for anything that xarray can open."""

    def __init__(self, data: xr.DataArray, name: str) -> None:
        self.name = name
        self.variable = data.variable
        self.raw_dtype = data.dtype.newbyteorder("=")
        # What xarray says about chunks holds for the array as it was opened, not for a view of it.
        self.chunks = tuple(Chunks.regular(n, max(n, 1)) for n in data.shape)
        self.identity: Hashable = ("xarray", id(data.variable._data))
        self._alive = data.variable._data

    def read(self, box: Box, out: np.ndarray[Any, Any]) -> None:
        """Read the values of a box into `out`."""
        try:
            out[...] = self.variable[_slices(box)].values
        except Exception as error:
            error.add_note(f"while reading {self.name} at {box} through xarray")
            raise

    def decoded_bytes(self, box: Box) -> int:
        """The box's own bytes: what lies behind xarray is not known."""
        return prod(high - low for low, high in box) * self.raw_dtype.itemsize

    def describe(self) -> dict[str, Any]:
        """How the array is read, for people."""
        return {"path": "xarray", "lazy": type(self.variable._data).__name__}


class DaskReader:
    """Computes a box of a Dask array on the calling thread, whatever its graph does."""

    def __init__(self, values: Any, name: str) -> None:
        self.name = name
        self.values = values
        self.raw_dtype = values.dtype.newbyteorder("=")
        self.chunks = tuple(Chunks.irregular(sizes) for sizes in values.chunks)
        self.identity: Hashable = ("dask", values.name)

    def read(self, box: Box, out: np.ndarray[Any, Any]) -> None:
        """Compute the values of a box into `out`."""
        try:
            out[...] = self.values[_slices(box)].compute(scheduler="synchronous")
        except Exception as error:
            error.add_note(f"while reading {self.name} at {box} through Dask")
            raise

    def decoded_bytes(self, box: Box) -> int:
        """Bytes of the whole Dask chunks that a box touches."""
        lengths: list[int] = []
        for chunks, (low, high) in zip(self.chunks, box, strict=True):
            if low == high:
                return 0
            first, last = chunks.index(np.array([low, high - 1]))
            lengths.append(int(chunks.start(last + 1) - chunks.start(first)))
        return prod(lengths) * int(self.raw_dtype.itemsize)

    def describe(self) -> dict[str, Any]:
        """How the array is read, for people."""
        return {"path": "dask", "layers": len(self.values.dask.layers)}
