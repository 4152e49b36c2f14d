"""What one sample is made of: a window of each array."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from superbatch.errors import ArgumentError, shown

Extent = int | slice


class Window:
    """What one array contributes to a sample: a box around the sample's anchor.

    Parameters
    ----------
    data : xarray.DataArray or zarr.Array
        The array that windows are cut from. A DataArray of ``xarray.open_zarr`` with any
        ``chunks=``; no data is read here.
    **extents : int or slice
        The window along each dimension, by name. An ``int`` is that many neighbouring positions: along
        a time axis (a coordinate of dates) they start at the anchor, along any other dimension they are
        centred on it, one more before the anchor than after it where the number is even. A ``slice`` of
        time offsets, such as ``slice("-30min", "2h")``, is taken around the anchor's time, both
        ends inside. A dimension that is not named is taken whole.

    Raises
    ------
    TypeError
        An extent is neither an int nor a slice.
    ArgumentError
        An int below one, or a slice with a step or an open end.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> sat = xr.DataArray(np.zeros((100, 64, 64), "f4"), dims=("time", "y", "x"))
    >>> Window(sat, time=12, y=32, x=32)
    Window(time=12, y=32, x=32)
    """

    def __init__(self, data: Any, /, **extents: Extent) -> None:
        self.data = data
        self.extents: Mapping[str, Extent] = dict(extents)
        for dim, extent in extents.items():
            _check(dim, extent)

    def __repr__(self) -> str:
        inside = ", ".join(f"{dim}={extent!r}" for dim, extent in self.extents.items())
        return f"Window({inside})"


def _check(dim: str, extent: object) -> None:
    if isinstance(extent, slice):
        if extent.step is not None or extent.start is None or extent.stop is None:
            raise ArgumentError(
                f"Window({dim}={shown(extent)}): a slice needs both ends and no step, "
                f'such as {dim}=slice("-30min", "2h")'
            )
        return
    try:
        # A flag is an int to Python, and a length to nobody.
        count = None if isinstance(extent, bool) else operator.index(extent)  # type: ignore[arg-type]
    except TypeError:
        count = None
    if count is None:
        raise TypeError(
            f"Window({dim}={shown(extent)}): an extent is a number of positions, such as {dim}=12, "
            f'or a slice of time offsets, such as {dim}=slice("-30min", "2h")'
        )
    if count < 1:
        raise ArgumentError(
            f"Window({dim}={shown(extent)}): a window has at least one position: write {dim}=1 or more"
        )
