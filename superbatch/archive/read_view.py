"""Which part of a stored array is seen, and in which order its axes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from superbatch.archive.chunks import Chunks

Box = tuple[tuple[int, int], ...]


class NotPlain(Exception):
    """An index that is not one position or an even stride along each axis."""


@dataclass(frozen=True)
class View:
    """A stored array seen through slices, fixed positions and a new order of its axes.

    Attributes
    ----------
    axes : tuple of range or int
        For each stored axis, the positions that are seen: a ``range``, with a negative step where
        the axis is flipped, or one position of an axis that is not seen.
    order : tuple of int or None
        For each seen dimension, the stored axis it runs along; None for a new one of length 1.
    """

    axes: tuple[range | int, ...]
    order: tuple[int | None, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> View:
        """All of an array of this shape, as it is."""
        return cls(tuple(range(n) for n in shape), tuple(range(len(shape))))

    @property
    def shape(self) -> tuple[int, ...]:
        """Positions along each seen dimension."""
        return tuple(1 if axis is None else len(self._range(axis)) for axis in self.order)

    def _range(self, axis: int) -> range:
        seen = self.axes[axis]
        assert isinstance(seen, range)
        return seen

    def index(self, key: Sequence[Any]) -> View:
        """The view of what ``array[key]`` gives, with a slice, range, int or even 1-d array a dimension.

        Raises
        ------
        NotPlain
            An array of positions that are not evenly spaced.
        """
        axes = list(self.axes)
        order: list[int | None] = []
        for seen, item in zip(self.order, key, strict=True):
            along = range(1) if seen is None else self._range(seen)
            taken = _take(along, item)
            if isinstance(taken, range):
                if seen is None and len(taken) != 1:
                    raise NotPlain(f"a new axis was indexed with {item!r}")
                order.append(seen)
            if seen is not None:
                axes[seen] = taken
        return View(tuple(axes), tuple(order))

    def vindex(self, key: Sequence[np.ndarray[Any, Any]], shape: Sequence[int]) -> View:
        """The view of what broadcasting index arrays give, where each runs along one axis at most.

        Parameters
        ----------
        key : sequence of int arrays
            One for each seen dimension, all of which broadcast to `shape`: what xarray makes of a
            transposed lazy array.

        Raises
        ------
        NotPlain
            Arrays that select points rather than a box, or that repeat positions.
        """
        axes = list(self.axes)
        order: list[int | None] = [None] * len(shape)
        for seen, item in zip(self.order, key, strict=True):
            along = range(1) if seen is None else self._range(seen)
            wide, positions = _one_axis(item.reshape((1,) * (len(shape) - item.ndim) + item.shape))
            if wide is None:
                if seen is not None:
                    axes[seen] = along[int(positions[0])]
                continue
            if seen is None or order[wide] is not None:
                raise NotPlain("index arrays that select points")
            axes[seen] = _take(along, positions)
            order[wide] = seen
        if any(n != 1 for axis, n in zip(order, shape, strict=True) if axis is None):
            raise NotPlain("index arrays that repeat positions")
        return View(tuple(axes), tuple(order))

    def transpose(self, order: Sequence[int]) -> View:
        """The same view with its dimensions in another order."""
        return View(self.axes, tuple(self.order[axis] for axis in order))

    def on(self, inner: View) -> View:
        """This view of what another view shows, as a view of the array under both."""
        placed = inner.index(self.axes)
        kept = [axis for axis, seen in enumerate(self.axes) if isinstance(seen, range)]
        order = (None if axis is None else placed.order[kept.index(axis)] for axis in self.order)
        return View(placed.axes, tuple(order))

    def chunks(self, stored: Sequence[Chunks]) -> tuple[Chunks, ...]:
        """The chunk borders of the stored axes, as seen along each dimension of the view."""
        return tuple(
            Chunks.regular(1, 1) if axis is None else _seen(self._range(axis), stored[axis])
            for axis in self.order
        )

    def select(self, box: Box) -> tuple[range, ...]:
        """The stored positions behind a box, along each stored axis, in rising order."""
        taken = [range(axis, axis + 1) if isinstance(axis, int) else axis for axis in self.axes]
        for axis, (low, high) in zip(self.order, box, strict=True):
            if axis is not None:
                part = self._range(axis)[low:high]
                taken[axis] = part if part.step > 0 else part[::-1]
        return tuple(taken)

    def stored(self, out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`out`, laid out as the view is seen, with its axes as they are stored."""
        kept = [axis for axis in self.order if axis is not None]
        # The ellipsis keeps it an array where no dimension is left.
        same = out[(*(0 if axis is None else slice(None) for axis in self.order), ...)]
        same = same.transpose(np.argsort(kept))
        return same[
            tuple(
                np.newaxis
                if isinstance(axis, int)
                else slice(None, None, -1 if axis.step < 0 else 1)
                for axis in self.axes
            )
        ]


def _one_axis(item: np.ndarray[Any, Any]) -> tuple[int | None, np.ndarray[Any, Any]]:
    """The one axis along which an index array varies, and its values along it."""
    if item.size == 0:
        raise NotPlain("an empty index array")
    for axis, n in enumerate(item.shape):
        first = item[(slice(None),) * axis + (slice(1),)]
        # xarray broadcasts its index arrays once a transposed array is sliced.
        if n != 1 and (item == first).all():
            item = first
    wide = [axis for axis, n in enumerate(item.shape) if n != 1]
    if len(wide) > 1:
        raise NotPlain("index arrays that select points")
    return (wide[0] if wide else None), item.reshape(-1)


def _take(along: range, item: Any) -> range | int:
    if isinstance(item, slice):
        return along[item]
    if isinstance(item, range):
        if len(item) == 0:
            return along[:0]
        first, stride = along[item[0]], along.step * item.step
        return range(first, first + stride * len(item), stride)
    if isinstance(item, np.ndarray) and item.ndim == 1:
        return _take_even(along, item)
    return along[int(item)]


def _take_even(along: range, positions: np.ndarray[Any, Any]) -> range:
    if positions.dtype.kind not in "iu":
        raise NotPlain(f"positions of type {positions.dtype}")
    if positions.size == 0:
        return along[:0]
    first, step = int(positions[0]), 1
    if positions.size > 1:
        gaps = np.diff(positions.astype(np.int64))
        step = int(gaps[0])
        if step == 0 or (gaps != step).any():
            raise NotPlain("positions that are not evenly spaced")
    last = first + step * (positions.size - 1)
    if min(first, last) < -len(along) or max(first, last) >= len(along):
        raise NotPlain("positions outside of the array")
    if min(first, last) < 0:
        if max(first, last) >= 0:
            raise NotPlain("positions that count from both ends")
        first, last = first + len(along), last + len(along)
    stride = along.step * step
    begin = along[first]
    return range(begin, begin + stride * positions.size, stride)


def _seen(along: range, chunks: Chunks) -> Chunks:
    """The borders of `chunks` in the positions of `along`."""
    count, step = len(along), abs(along.step)
    if count == 0:
        return Chunks.regular(0, 1)
    if chunks.size is not None:
        size = chunks.size
        into = (along.start + chunks.offset) % size
        if step >= size:
            # No two neighbours share a chunk.
            return Chunks.regular(count, 1)
        if size % step == 0:
            whole, part = size // step, into // step
            return Chunks.regular(count, whole, part if along.step > 0 else whole - 1 - part)
    which = chunks.index(along.start + along.step * np.arange(count))
    borders = np.flatnonzero(np.diff(which)) + 1
    return Chunks.irregular(np.diff(np.concatenate(([0], borders, [count]))))
