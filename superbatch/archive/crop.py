"""One window of one modality, cut out of a loaded block."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch import seeds
from superbatch.archive.arrays import Array
from superbatch.archive.boxes import Box
from superbatch.archive.gather import copy_windows
from superbatch.archive.lookup import Lookup, Points, Span
from superbatch.archive.values import Values

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cut:
    """The window of one modality, given an anchor.

    Attributes
    ----------
    name : str
        The modality.
    array : int
        Which of the arrays it is cut from.
    lookups : tuple of Lookup or None
        For each dimension of the array: the position that the anchor has along it; None where the
        dimension is taken whole.
    offset, size : tuple of int
        For each dimension: first position relative to that, and number of positions.
    dropped : tuple of int
        Dimensions of size one that are not in the sample.
    dims, shape : tuple
        Of the sample.
    points : Points or None
        For forecasts: runs and steps.
    differences : bool array or None
        Values that are differences to the step before.
    fill : bool
        Whether windows may reach over the edge.
    values : Values
    """

    name: str
    array: int
    lookups: tuple[Lookup | None, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]
    dropped: tuple[int, ...]
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    points: Points | None
    differences: npt.NDArray[np.bool_] | None
    fill: bool
    values: Values

    @property
    def simple(self) -> bool:
        """Whether a window is a slice of the block, and its values are taken as they are."""
        return self.points is None and not self.fill and self.values.plain

    def fields(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """What it contributes to a sample."""
        found = {self.name: (self.shape, self.values.dtype)}
        if self.values.mask:
            found[f"{self.name}_mask"] = self.shape, np.dtype(bool)
        return found


def needs(cut: Cut, dim: int, length: int, spans: Sequence[Span]) -> Span:
    """First position and one past the last that a cut needs along a dimension, for every sequence."""
    count = len(spans[0][0])
    points = cut.points
    if points is not None and dim in (points.run_dim, points.step_dim):
        is_run = dim == points.run_dim
        first, last = points.range(spans, points.run if is_run else points.step)
        if points.before and not is_run:
            first = first - 1
        return first, last + 1
    lookup = cut.lookups[dim]
    if lookup is None:
        return np.zeros(count, np.int64), np.full(count, length, np.int64)
    first, last = lookup.range(spans)
    return first + cut.offset[dim], last + cut.offset[dim] + cut.size[dim]


def corners_of(cut: Cut, box: Box, anchors: Ints) -> Ints:
    """Where each window begins inside of the block."""
    corners = np.empty((len(anchors), len(cut.lookups)), dtype=np.int64)
    for dim, lookup in enumerate(cut.lookups):
        base = cut.offset[dim] - box[dim][0]
        corners[:, dim] = base if lookup is None else lookup.at(anchors) + base
    return corners


class Crop:
    """One modality of one block."""

    def __init__(self, cut: Cut, array: Array, block: npt.NDArray[Any], box: Box) -> None:
        self.cut, self.block, self.box = cut, block, box
        self.decode, self.dtype = array.decode, array.dtype
        self.copies = array.copies or cut.values.raw
        if cut.values.raw:
            self.decode, self.dtype = _copy, array.raw_dtype

    def cut_all(
        self,
        corners: Ints,
        anchors: Ints,
        noise: Floats,
        rows: Ints,
        slot: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Write the windows to their rows."""
        cut, out = self.cut, slot[self.cut.name]
        if cut.simple and self.copies and self.block.flags.c_contiguous and out.flags.c_contiguous:
            copy_windows(self.block, corners, cut.size, rows, out)
            return
        if cut.simple:
            decode, block, size, dropped = self.decode, self.block, cut.size, cut.dropped
            for row, at in zip(rows.tolist(), corners.tolist(), strict=True):
                decode(block[_slices(at, size, dropped)], out[row])
            return
        mask = slot[f"{cut.name}_mask"] if cut.values.mask else None
        share = seeds.apart(noise[:, 1], zlib.crc32(cut.name.encode()))
        variant = None if cut.points is None else cut.points.variants(noise[:, 0])
        for number, (row, at) in enumerate(zip(rows.tolist(), corners.tolist(), strict=True)):
            into = None if mask is None else mask[row]
            if share[number] < cut.values.dropout:
                cut.values.drop(out[row], into)
                continue
            if variant is None:
                values, there = self._box(at)
            else:
                assert cut.points is not None
                column = anchors[number, cut.points.column]
                values, there = self._points(at, int(variant[number]), int(column))
            if there is None and cut.values.plain:
                out[row] = values
            else:
                cut.values.finish(values, out[row], into, there)

    def _box(self, at: Sequence[int]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
        cut = self.cut
        place, inside = self._clipped(at)
        values = np.empty(cut.shape, self.dtype)
        if inside is None:
            self.decode(self.block[_slices(at, cut.size, cut.dropped)], values)
            return values, None
        there = np.zeros(cut.shape, dtype=bool)
        kept = tuple(s for d, s in enumerate(inside) if d not in cut.dropped)
        values[...] = 0
        part = self.block[tuple(s.start if d in cut.dropped else s for d, s in enumerate(place))]
        if part.size:
            decoded = np.empty(part.shape, self.dtype)
            self.decode(part, decoded)
            values[kept], there[kept] = decoded, True
        return values, there

    def _clipped(self, at: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...] | None]:
        """The part of a window that the block has, and where it lies in the window."""
        place, inside, whole = [], [], True
        for a, n, length in zip(at, self.cut.size, self.block.shape, strict=True):
            low, high = max(a, 0), max(min(a + n, length), max(a, 0))
            whole = whole and high - low == n
            place.append(slice(low, high))
            inside.append(slice(low - a, high - a))
        return tuple(place), None if whole else tuple(inside)

    def _points(
        self, at: Sequence[int], variant: int, column: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
        cut, points = self.cut, self.cut.points
        assert points is not None
        run = points.run[variant, column] - self.box[points.run_dim][0]
        step = points.step[variant, column] - self.box[points.step_dim][0]
        values, there = self._gather(at, run, step)
        if cut.differences is not None:
            before = np.maximum(step - 1, 0)
            earlier, _ = self._gather(at, run, before)
            # Nothing has accumulated yet at the first step of a run.
            first = (points.step[variant, column] == 0).reshape(
                [-1 if d == self._run_place() else 1 for d in range(values.ndim)]
            )
            change = np.broadcast_to(cut.differences & ~first, values.shape)
            values = np.where(change, values - earlier, values)
        return values, there

    def _run_place(self) -> int:
        """The dimension of valid times in the sample."""
        cut = self.cut
        assert cut.points is not None
        gone = {*cut.dropped, cut.points.step_dim}
        return sum(d not in gone for d in range(cut.points.run_dim))

    def _gather(
        self, at: Sequence[int], run: npt.NDArray[Any], step: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
        cut, points = self.cut, self.cut.points
        assert points is not None
        place, inside = self._clipped(
            [0 if d in (points.run_dim, points.step_dim) else a for d, a in enumerate(at)]
        )
        index: list[Any] = list(place)
        index[points.run_dim], index[points.step_dim] = run, step
        raw = self.block[tuple(index)]
        # NumPy puts what two index arrays select first, unless their dimensions are neighbours.
        at_front = abs(points.run_dim - points.step_dim) > 1
        dims = [d for d in range(self.block.ndim) if d != points.step_dim]
        if at_front:
            raw = np.moveaxis(raw, 0, dims.index(points.run_dim))
        raw = raw.reshape([n for d, n in zip(dims, raw.shape, strict=True) if d not in cut.dropped])
        decoded = np.empty(raw.shape, self.dtype)
        self.decode(raw, decoded)
        if inside is None or raw.shape == cut.shape:
            return decoded, None
        values, there = np.zeros(cut.shape, self.dtype), np.zeros(cut.shape, dtype=bool)
        kept = [
            s
            for d, s in enumerate(inside)
            if d not in cut.dropped and d not in (points.run_dim, points.step_dim)
        ]
        kept.insert(self._run_place(), slice(None))
        values[tuple(kept)], there[tuple(kept)] = decoded, True
        return values, there


def _copy(raw: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    out[...] = raw


def _slices(
    corner: Sequence[int], size: Sequence[int], dropped: Sequence[int]
) -> tuple[slice | int, ...]:
    if not dropped:
        return tuple(slice(a, a + n) for a, n in zip(corner, size, strict=True))
    return tuple(
        a if d in dropped else slice(a, a + n)
        for d, (a, n) in enumerate(zip(corner, size, strict=True))
    )
