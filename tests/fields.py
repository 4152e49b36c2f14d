"""Stores whose values say where they stand.

Each value of a field is its own position, counted along all dimensions. So a served window proves by
itself where it was cut from: the first value names a corner, and everything else has to follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

Array = npt.NDArray[Any]


def field(shape: Sequence[int], dtype: npt.DTypeLike = "int32") -> Array:
    """An array whose values are their own positions, counted in C order."""
    count = int(np.prod(shape))
    assert count - 1 == int(np.array(count - 1).astype(dtype)), (
        f"{dtype} cannot number {count} values"
    )
    return np.arange(count).astype(dtype).reshape(shape)


def write(
    path: Path,
    values: Array | Mapping[str, Array],
    *,
    dims: Sequence[str],
    chunks: Sequence[int] | Mapping[str, Sequence[int]],
    shards: Sequence[int] | None = None,
    coords: Mapping[str, Any] | None = None,
    zarr_format: int = 3,
) -> xr.Dataset:
    """Write one field ("field"), or several of the same dimensions, and open the store again.

    Opened with ``chunks=None``: nothing is read but metadata and coordinates.
    """
    several = values if isinstance(values, Mapping) else {"field": values}
    variables, encoding = {}, {}
    for name, value in several.items():
        variables[name] = (tuple(dims), value)
        own = chunks[name] if isinstance(chunks, Mapping) else chunks
        encoding[name] = {"chunks": tuple(own)}
        if shards is not None:
            encoding[name]["shards"] = tuple(shards)
        if zarr_format == 3:
            # Else a value that equals the fill value comes back as NaN, and the field as floats.
            encoding[name]["fill_value"] = 0
    made = xr.Dataset(variables, coords=coords)
    made.to_zarr(path, mode="w", encoding=encoding, zarr_format=zarr_format, consolidated=False)
    return xr.open_zarr(path, chunks=None, consolidated=False)


def write_plain(
    path: Path, values: Array, *, chunks: Sequence[int], **options: Any
) -> zarr.Array[Any]:
    """Write one array without a group or coordinates."""
    made = zarr.create_array(
        path, shape=values.shape, dtype=values.dtype, chunks=tuple(chunks), **options
    )
    made[...] = values
    return zarr.open_array(path, mode="r")


def corners(windows: Any, whole: Array) -> Array:
    """Where each window of a batch was cut from ``whole``; fails where one is not a cut of it.

    Parameters
    ----------
    windows : tensor or array of shape (samples, *window)
    whole : array
        A :func:`field`.

    Returns
    -------
    int64 array of shape (samples, dimensions)
    """
    got = np.asarray(windows)
    assert got.dtype == whole.dtype, (got.dtype, whole.dtype)
    first = got.reshape(len(got), -1)[:, 0].astype(np.int64)
    assert ((first >= 0) & (first < whole.size)).all(), f"no value of the field: {first}"
    at = np.stack(np.unravel_index(first, whole.shape), axis=-1)
    for window, corner in zip(got, at, strict=True):
        place = tuple(slice(a, a + n) for a, n in zip(corner, window.shape, strict=True))
        np.testing.assert_array_equal(window, whole[place], err_msg=f"not the cut at {corner}")
    return at.astype(np.int64)
