"""The grid of the anchors, and the modalities that are being placed on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from superbatch.archive import places, times
from superbatch.archive.arrays import Array
from superbatch.archive.chunks import Chunks
from superbatch.archive.crop import Cut
from superbatch.archive.lookup import Lookup, Points
from superbatch.archive.times import is_time
from superbatch.errors import ArgumentError, shown
from superbatch.window import Forecast, Window

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass
class Dimension:
    """One column of the anchor, and the windows along it."""

    name: str
    length: int
    chunks: Chunks
    coordinate: npt.NDArray[Any] | None
    # First position that any modality on this very grid needs, relative to the anchor, and one past the
    # last. The anchor is always among them, so that every sample has a place of its own on the axis.
    low: int = 0
    high: int = 1
    # By reason: which anchors along it may be drawn.
    valid: dict[str, Bools] = field(default_factory=dict)
    site: bool = False
    # Of windows on time axes of their own: the axis, and for each anchor the first and last position there.
    reach: list[tuple[npt.NDArray[Any], Ints, Ints]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return self.high - self.low

    def rule_out(self, reason: str, valid: Bools) -> None:
        """Allow only what is valid for this reason too."""
        if not valid.all():
            self.valid[reason] = self.valid.get(reason, np.ones_like(valid)) & valid


@dataclass
class Grid:
    """The columns of the anchor, the distinct arrays and how each modality is cut."""

    dimensions: list[Dimension]
    arrays: list[Array]
    cuts: list[Cut]
    # Pairs of columns whose valid places depend on each other: (first, second, valid).
    joint: tuple[int, int, Bools] | None = None
    joint_reasons: dict[str, int] = field(default_factory=dict)
    joint_when: dict[str, list[str]] = field(default_factory=dict)
    # Of forecasts, in nanoseconds: valid times by anchor time, and times of runs.
    times: dict[str, Ints] = field(default_factory=dict)
    runs: dict[str, Ints] = field(default_factory=dict)
    place: dict[str, tuple[tuple[int, ...], npt.NDArray[Any]]] = field(default_factory=dict)


@dataclass
class Modality:
    name: str
    window: Window
    number: int
    array: Array
    lookups: list[Lookup | None]
    offset: list[int]
    size: list[int]
    dropped: list[int]
    points: Points | None = None

    def put(self, dim: int, lookup: Lookup, low: int, size: int) -> None:
        self.lookups[dim], self.offset[dim], self.size[dim] = lookup, low, size


def known_dimensions(name: str, window: Window, array: Array) -> None:
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


def same(a: Array, b: Array, dim: str) -> bool:
    """Whether two arrays have the same positions along a dimension, as far as they tell."""
    if dim not in a.dims or dim not in b.dims:
        return False
    if a.shape[a.dims.index(dim)] != b.shape[b.dims.index(dim)]:
        return False
    here, there = a.coords.get(dim), b.coords.get(dim)
    return here is None or there is None or bool((here == there).all())


def extent(
    name: str, dim: str, extent: Any, coordinate: npt.NDArray[Any] | None
) -> tuple[int, int]:
    """First position and one past the last that a window covers, relative to its anchor."""
    if not isinstance(extent, slice):
        length = int(extent)
        low = 0 if is_time(coordinate) else -(length // 2)
        return low, low + length
    if coordinate is None or not is_time(coordinate):
        raise ArgumentError(
            f"Window of {name!r}: {dim}={shown(extent)} gives time offsets, but {dim!r} has no time coordinate: "
            f"write a number of positions, such as {dim}=12"
        )
    step = times.step_of(coordinate) if len(coordinate) > 1 else pd.Timedelta(0)
    if not step:
        raise ArgumentError(
            f"Window of {name!r}: {dim}={shown(extent)} gives time offsets, but {dim!r} has "
            + (
                f"most of its {len(coordinate)} stamps repeated: drop them first, such as with "
                f".drop_duplicates({dim!r})"
                if len(coordinate) > 1
                else f"one stamp, and so no step: write {dim}=1"
            )
        )
    return times.steps(extent, step, f"Window of {name!r}, {dim}")


def fits(m: Modality, dim: str, length: int) -> None:
    has = m.array.shape[m.array.dims.index(dim)]
    if length > has and m.window.options.edge == "drop":
        raise ArgumentError(
            f"the window of {m.name!r} is {length} long in {dim!r}, where the array has {has}: "
            f'write {dim}={has} or less, or edge="fill"'
        )


def coordinates(m: Modality, dims: list[str]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The places of all pixels of a grid, as two 2-d arrays."""
    at = m.window.options.at or {}
    if at:
        found = [m.window.data.coords[at[d]].transpose(*dims).values for d in dims]
        return np.asarray(found[0], np.float64), np.asarray(found[1], np.float64)
    y, x = np.meshgrid(*(m.array.coords[d].astype(np.float64) for d in dims), indexing="ij")
    return y, x


def north_east(m: Modality, dims: list[str]) -> list[str]:
    """Two dimensions of space, the one to the north first; as they lie in the array where names do not tell."""
    at = m.window.options.at or {}
    found: dict[str, str] = {}
    for dim in dims:
        for name in (str(at.get(dim, dim)).lower(), dim.lower()):
            if dim not in found and (name[0] == "x" or "lon" in name or "east" in name):
                found[dim] = "x"
            elif dim not in found and (name[0] == "y" or "lat" in name or "north" in name):
                found[dim] = "y"
    if set(found.values()) == {"x", "y"}:
        return sorted(dims, key=lambda d: found[d], reverse=True)
    return sorted(dims, key=m.array.dims.index)


def nearest_pixels(
    m: Modality, dims: list[str], y: npt.NDArray[Any], x: npt.NDArray[Any]
) -> tuple[Ints, Ints, Bools]:
    """The pixel of each place."""
    if m.window.options.at:
        missing = [c for c in m.window.options.at.values() if c not in m.window.data.coords]
        if missing:
            raise ArgumentError(
                f"at= of {m.name!r} names {missing[0]!r}, which its array has no coordinate of: name one of "
                f"{', '.join(map(str, m.window.data.coords)) or '(none)'}"
            )
        own_y, own_x = coordinates(m, dims)
        return places.nearest_2d(own_y, own_x, y, x)
    row, inside_y = places.nearest(m.array.coords[dims[0]], y)
    column, inside_x = places.nearest(m.array.coords[dims[1]], x)
    return row, column, inside_y & inside_x


def small(table: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    return table.astype(np.int32)


def accumulated(
    window: Forecast, name: str, array: Array, dims: list[str], shape: list[int]
) -> npt.NDArray[np.bool_]:
    """Which values of a sample are differences to the step before; broadcastable to it."""
    if window.accumulated is True:
        return np.ones((1,) * len(dims), dtype=bool)
    wanted = (
        [window.accumulated]
        if isinstance(window.accumulated, str)
        else list(window.accumulated or [])
    )
    for number, dim in enumerate(dims):
        labels = array.coords.get(dim)
        if labels is not None and set(wanted) <= set(labels.tolist()):
            chosen = np.isin(labels, wanted)
            return chosen.reshape([-1 if i == number else 1 for i in range(len(dims))])
    raise ArgumentError(
        f"accumulated={wanted} of {name!r}: no dimension has these labels; write True for all values, or "
        f"labels of one dimension"
    )
