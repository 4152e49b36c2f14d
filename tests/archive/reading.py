"""What tests of reading share: a store that names its positions, and the comparison with xarray."""

from __future__ import annotations

import pickle

import numpy as np
import xarray as xr

from superbatch.archive.arrays import Array, as_array

SHAPE = (23, 17, 10)
DIMS = ("time", "y", "x")


def write_positions(path) -> None:
    """A Zarr store whose values name their position, with coordinates of several kinds."""
    field = np.arange(np.prod(SHAPE), dtype="int32").reshape(SHAPE)
    xr.Dataset(
        {"field": (DIMS, field), "one": (("y",), field[0, :, 0])},
        {
            "time": np.datetime64("2020-01-01", "ns") + np.arange(23) * np.timedelta64(1, "h"),
            "y": np.linspace(60, 50, 17),
            "place": (("y", "x"), field[0]),
            "label": ("time", [f"step {k}" for k in range(23)]),
        },
    ).to_zarr(path, encoding={"field": {"chunks": (6, 5, 4)}}, zarr_format=3)


def whole(array: Array) -> np.ndarray:
    """All values of an array, decoded."""
    return window(array, tuple((0, n) for n in array.shape))


def window(array: Array, box) -> np.ndarray:
    """A window, read with a margin and cropped before it is decoded, as a loader does."""
    wide = tuple((max(0, a - 1), min(n, b + 1)) for (a, b), n in zip(box, array.shape, strict=True))
    raw = array.read(wide)
    crop = raw[tuple(slice(a - w, b - w) for (a, b), (w, _) in zip(box, wide, strict=True))]
    out = np.empty(crop.shape, array.dtype)
    array.decode(crop, out)
    return out


def same(data: xr.DataArray, path: str | None = "zarr", dtype=None) -> Array:
    """Check an array against what the DataArray shows, and which way it took."""
    array = pickle.loads(pickle.dumps(as_array(data, "field")))
    assert path is None or array.describe()["path"] == path, array.describe()
    assert (array.dims, array.shape) == (data.dims, data.shape)
    assert array.dtype == (data.dtype if dtype is None else dtype)
    values = data.values
    np.testing.assert_array_equal(whole(array), values)
    middle = tuple((n // 3, n - n // 4) for n in data.shape)
    np.testing.assert_array_equal(window(array, middle), values[tuple(slice(*b) for b in middle)])
    for dim, borders, n in zip(array.dims, array.chunks, array.shape, strict=True):
        assert borders.length == n, dim
    return array
