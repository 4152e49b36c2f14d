"""From windows to the axes of a plan: which positions each modality needs around an anchor."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from superbatch.archive.arrays import Array, as_array
from superbatch.archive.cut import Cut
from superbatch.errors import ArgumentError
from superbatch.window import Extent, Window


@dataclass
class Dimension:
    """One windowed dimension of the grid that the modalities share."""

    name: str
    length: int
    reference: int  # the array whose chunks divide it
    coordinate: npt.NDArray[Any] | None
    # First position that any modality needs, relative to the anchor, and one past the last. The anchor
    # is always among them, so that every sample has a place of its own on the axis.
    low: int = 0
    high: int = 1

    @property
    def width(self) -> int:
        return self.high - self.low


@dataclass
class Grid:
    """The windowed dimensions, the distinct arrays and how each modality is cut."""

    dimensions: list[Dimension]
    arrays: list[Array]
    cuts: list[Cut]


def align(windows: Mapping[str, Window]) -> Grid:
    """Bring several arrays on one grid together.

    Parameters
    ----------
    windows : mapping of str to Window
        The modalities; the first is the reference.

    Returns
    -------
    Grid

    Raises
    ------
    ArgumentError
        A dimension that does not exist, a window longer than its array, arrays that are not on one
        grid.
    """
    arrays: list[Array] = []
    numbers: dict[Any, int] = {}
    own: list[tuple[str, Window, int, Array]] = []
    for name, window in windows.items():
        array = as_array(window.data, name)
        # Two modalities may share their values and yet be labelled differently.
        values = array.identity, array.dims
        if values not in numbers:
            numbers[values] = len(arrays)
            arrays.append(array)
        own.append((name, window, numbers[values], array))
        _known_dimensions(name, window, array)

    dimensions: dict[str, Dimension] = {}
    extents: list[dict[str, tuple[int, int]]] = []
    for name, window, number, array in own:
        ranges = {}
        for dim, extent in window.extents.items():
            length = array.shape[array.dims.index(dim)]
            known = dimensions.setdefault(
                dim, Dimension(dim, length, number, array.coords.get(dim))
            )
            _one_grid(known, name, array, length, next(iter(windows)))
            low, high = _positions(name, dim, extent, known.coordinate)
            if high - low > length:
                raise ArgumentError(
                    f"the window of {name!r} is {high - low} long in {dim!r}, where the array has {length}: "
                    f"write {dim}={length} or less"
                )
            ranges[dim] = (low, high)
            known.low, known.high = min(known.low, low), max(known.high, high)
        extents.append(ranges)
    if not dimensions:
        raise ArgumentError(
            f"no dimension is windowed, so there is one sample only: name a dimension in Window(...), "
            f"such as {arrays[0].dims[0]}=1"
        )
    order = list(dimensions)
    cuts = []
    for (name, _, number, array), ranges in zip(own, extents, strict=True):
        axes: list[int | None] = []
        offset, size = [], []
        for dim, length in zip(array.dims, array.shape, strict=True):
            if dim in ranges:
                low, high = ranges[dim]
                axes.append(order.index(dim))
                offset.append(low - dimensions[dim].low)
                size.append(high - low)
            else:
                axes.append(None)
                offset.append(0)
                size.append(length)
        cuts.append(Cut(name, number, tuple(axes), tuple(offset), tuple(size)))
    return Grid(list(dimensions.values()), arrays, cuts)


def is_time(coordinate: npt.NDArray[Any] | None) -> bool:
    """Whether a coordinate holds dates or durations."""
    if coordinate is None or not len(coordinate):
        return False
    if coordinate.dtype.kind in "mM":
        return True
    return coordinate.dtype == object and hasattr(coordinate[0], "calendar")


def step_of(coordinate: npt.NDArray[Any]) -> pd.Timedelta:
    """The step of a time axis: the median of the differences between neighbours."""
    differences = np.diff(coordinate)
    if coordinate.dtype == object:
        seconds = np.array([d.total_seconds() for d in differences])
        return pd.Timedelta(seconds=float(np.median(seconds)))
    nanoseconds = differences.astype("timedelta64[ns]").astype(np.int64)
    return pd.Timedelta(int(np.median(nanoseconds)), unit="ns")


def _known_dimensions(name: str, window: Window, array: Array) -> None:
    if 0 in array.shape:
        empty = array.dims[array.shape.index(0)]
        raise ArgumentError(
            f"the array of {name!r} has no positions in {empty!r}: use one that holds something"
        )
    for dim in window.extents:
        if dim not in array.dims:
            raise ArgumentError(
                f"Window of {name!r} names the dimension {dim!r}, which its array does not have: "
                f"write one of {', '.join(array.dims)}"
            )


def _one_grid(known: Dimension, name: str, array: Array, length: int, reference: str) -> None:
    coordinate = array.coords.get(known.name)
    if length != known.length:
        raise ArgumentError(
            f"{name!r} has {length} positions in {known.name!r} where {reference!r} has {known.length}: "
            f"windowed dimensions have to be on one grid; select the part that both have"
        )
    if coordinate is None or known.coordinate is None or coordinate is known.coordinate:
        return
    differ = np.flatnonzero(coordinate != known.coordinate)
    if len(differ):
        at = int(differ[0])
        raise ArgumentError(
            f"{name!r} and {reference!r} are not on one grid: at position {at} of {known.name!r} they have "
            f"{coordinate[at]} and {known.coordinate[at]}; select the part that both have"
        )


def _positions(
    name: str, dim: str, extent: Extent, coordinate: npt.NDArray[Any] | None
) -> tuple[int, int]:
    """First position and one past the last that a window covers, relative to its anchor."""
    if not isinstance(extent, slice):
        length = int(extent)
        low = 0 if is_time(coordinate) else -(length // 2)
        return low, low + length
    if coordinate is None or not is_time(coordinate):
        raise ArgumentError(
            f"Window of {name!r}: {dim}={extent!r} gives time offsets, but {dim!r} has no time coordinate: "
            f"write a number of positions, such as {dim}=12"
        )
    begin, end = (_offset(name, dim, value) for value in (extent.start, extent.stop))
    step = step_of(coordinate) if len(coordinate) > 1 else pd.Timedelta(0)
    if not step:
        raise ArgumentError(
            f"Window of {name!r}: {dim}={extent!r} gives time offsets, but {dim!r} has "
            + (
                f"most of its {len(coordinate)} stamps repeated: drop them first, such as with "
                f".drop_duplicates({dim!r})"
                if len(coordinate) > 1
                else f"one stamp, and so no step: write {dim}=1"
            )
        )
    if step < pd.Timedelta(0):  # a later time comes first
        begin, end = end, begin
    # Both ends belong to the window; an end between two steps is moved inwards.
    low, high = -((-begin) // step), end // step + 1
    if high <= low:
        raise ArgumentError(
            f"Window of {name!r}: {dim}={extent!r} holds no position of an axis with a step of {step}: "
            f"write a longer slice"
        )
    return int(low), int(high)


def _offset(name: str, dim: str, value: object) -> pd.Timedelta:
    try:
        if isinstance(value, (str, datetime.timedelta, np.timedelta64)):
            offset = pd.Timedelta(value)
            if not pd.isna(offset):
                return offset
    except ValueError:
        pass
    raise ArgumentError(
        f'Window of {name!r}: {value!r} in {dim} is not a time offset: write one such as "30min" or "-2h"'
    )
