"""From the windows that a plan has drawn to anchors: times and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.joint import JointAxis
from superbatch.archive.lookup import Lookup, Points, Span
from superbatch.archive.sequences import Axis

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass
class Anchors:
    """The columns of the anchor, behind the axes of the plan.

    Attributes
    ----------
    axes : sequence of Axis or JointAxis
        The axes of the plan; a joint one has two columns.
    order : sequence of int
        Which column each of the axes' columns is, in turn.
    offset : sequence of int
        For each column: where the anchor lies relative to the start of the window.
    names : sequence of str
        The columns.
    coordinates : mapping of str to array
        What is known along them, for naming an anchor to people.
    every : (int, int), optional
        A column that no axis moves, and its length: a sample has an anchor at each place along it.
    """

    axes: Sequence[Axis | JointAxis]
    order: Sequence[int]
    offset: Sequence[int]
    names: Sequence[str]
    coordinates: Mapping[str, npt.NDArray[Any]]
    every: tuple[int, int] | None = None

    @property
    def each(self) -> int:
        """Anchors of one sample."""
        return 1 if self.every is None else self.every[1]

    def of(self, starts: Ints) -> Ints:
        """The anchors, shape (n * each, columns), of windows that begin at ``starts``, (n, axes)."""
        columns = []
        for number, axis in enumerate(self.axes):
            column = starts[:, number]
            columns += list(axis.split(column)) if isinstance(axis, JointAxis) else [column]
        out = np.zeros((len(starts), len(self.offset)), dtype=np.int64)
        out[:, list(self.order)] = np.stack(columns, axis=-1)
        if self.every is not None:
            place, length = self.every
            out = np.repeat(out, length, axis=0)
            out[:, place] = np.tile(np.arange(length), len(starts))
        return out + np.array(self.offset, dtype=np.int64)

    def spans(self, items: Ints) -> list[Span]:
        """For each column, the first and last anchor that each sequence can have."""
        spans: list[Span] = []
        for number, axis in enumerate(self.axes):
            if isinstance(axis, JointAxis):
                first, second = axis.split_item(items[:, number])
                spans += [axis.first.span(first), axis.second.span(second)]
            else:
                spans.append(axis.span(items[:, number]))
        if self.every is not None:
            column, length = self.every
            zero = np.zeros(len(items), dtype=np.int64)
            spans.append((zero, zero + length - 1))
            order = [*self.order, column]
        else:
            order = list(self.order)
        ordered = [spans[order.index(column)] for column in range(len(spans))]
        return [(f + o, t + o) for (f, t), o in zip(ordered, self.offset, strict=True)]

    def where(self, start: Ints) -> str:
        """The anchor of a sample, for people."""
        parts = []
        every = None if self.every is None else self.every[0]
        for number, (name, place) in enumerate(
            zip(self.names, self.of(start[None])[0].tolist(), strict=True)
        ):
            if number == every:
                continue
            known = self.coordinates.get(name)
            parts.append(f"{name}={place}" + ("" if known is None else f" ({known[place]})"))
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Extra:
    """Something about the anchor that goes into the sample.

    Attributes
    ----------
    name : str
    lookup : Lookup
        Into ``values``.
    values : array
        One for each place, or one row.
    labels : array of str, optional
        What the values count, where they stand for strings.
    points : Points, optional
        Where the value belongs to the runs of a forecast.
    """

    name: str
    lookup: Lookup
    values: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None = None
    points: Points | None = None

    @property
    def field(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of one."""
        if self.points is not None:
            return (self.points.run.shape[2],), self.values.dtype
        return self.values.shape[1:], self.values.dtype

    def of(self, anchors: Ints, noise: Floats) -> npt.NDArray[Any]:
        """The values of some samples."""
        if self.points is not None:
            variant = self.points.variants(noise[:, 0])
            return np.asarray(self.values[self.points.run[variant, anchors[:, self.points.column]]])
        return np.asarray(self.values[self.lookup.at(anchors)])
