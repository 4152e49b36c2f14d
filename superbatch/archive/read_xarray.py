"""What lies under a lazy xarray variable: the Zarr array, the view of it, and its decoding.

Only wrappers whose meaning is certain are looked through. Anything else raises :class:`NotPlain`,
and the array is read through xarray itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from superbatch.archive.read_cf import Step
from superbatch.archive.read_view import NotPlain, View

# More wrappers than xarray puts around an array.
_DEEPEST = 50


@dataclass(frozen=True)
class Unwrapped:
    """A stored array, what is seen of it, and the element-wise steps around it, innermost first."""

    stored: zarr.Array[Any]
    view: View
    steps: tuple[tuple[Step, np.dtype[Any]], ...] = ()


def unwrap(data: Any) -> Unwrapped:
    """Look through xarray's lazy wrappers.

    Parameters
    ----------
    data : object
        What ``DataArray.variable._data`` is for data that was opened with ``chunks=None``, or what
        lies at the source of a Dask graph of xarray's.

    Raises
    ------
    NotPlain
        A wrapper that is not known, or an index that does not select a box with even strides.
    """
    kind = _kind(data)
    if kind == "ZarrArrayWrapper":
        return Unwrapped(data._array, View.whole(data._array.shape))
    if kind in ("MemoryCachedArray", "CopyOnWriteArray", "ImplicitToExplicitIndexingAdapter"):
        # Once values were loaded or changed, what is wrapped is a NumPy array.
        return unwrap(data.array)
    if kind == "LazilyIndexedArray":
        inner = unwrap(data.array)
        return Unwrapped(inner.stored, inner.view.index(data.key.tuple), inner.steps)
    if kind == "LazilyVectorizedIndexedArray":
        inner = unwrap(data.array)
        return Unwrapped(inner.stored, inner.view.vindex(data.key.tuple, data.shape), inner.steps)
    if kind == "_ElementwiseFunctionArray":
        inner = unwrap(data.array)
        return Unwrapped(inner.stored, inner.view, (*inner.steps, (data.func, data.dtype)))
    if kind in ("NativeEndiannessArray", "BoolTypeArray"):
        inner = unwrap(data.array)
        step = (_AsType(data.dtype), data.dtype)
        return Unwrapped(inner.stored, inner.view, (*inner.steps, step))
    raise NotPlain(f"no way to look through {type(data).__name__}")


def _kind(data: Any) -> str:
    """Name of a class of xarray's own: its modules change from release to release."""
    kind = type(data)
    return kind.__name__ if kind.__module__.split(".")[0] == "xarray" else ""


def sources(data: Any) -> list[zarr.Array[Any]]:
    """The Zarr array that lazy data comes from, where one is found under any wrappers at all."""
    seen = 0
    while not isinstance(data, zarr.Array) and seen < _DEEPEST:
        data = data._array if _kind(data) == "ZarrArrayWrapper" else getattr(data, "array", None)
        seen += 1
    return [data] if isinstance(data, zarr.Array) else []


@dataclass(frozen=True)
class _AsType:
    dtype: np.dtype[Any]

    def __call__(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return values.astype(self.dtype, copy=False)
