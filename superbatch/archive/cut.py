"""Cutting samples out of loaded blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.arrays import Array
from superbatch.archive.boxes import Box
from superbatch.archive.patience import Loaded, Patience, spell
from superbatch.archive.sequences import Axis
from superbatch.errors import SuperbatchError

Ints = npt.NDArray[np.int64]
Sample = dict[str, npt.NDArray[Any]]
Transform = Callable[[Sample], Mapping[str, Any]]
Reject = Callable[[Sample], bool]


@dataclass(frozen=True)
class Cut:
    """The window of one modality, relative to the start of the sample's window.

    Attributes
    ----------
    name : str
        The modality.
    array : int
        Which of the arrays it is cut from.
    axes : tuple of int or None
        For each dimension of the array: the axis of the plan that moves it; None where it is taken whole.
    offset, size : tuple of int
        For each dimension: first position relative to the start, and number of positions.
    """

    name: str
    array: int
    axes: tuple[int | None, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]


@dataclass
class Report:
    """What became of the samples of one sequence.

    Attributes
    ----------
    rejected : int64 array
        Rows whose samples ``reject`` turned down; they hold nothing of use.
    unread : int64 array
        Rows whose samples could not be read; likewise.
    bad : list of str
        What could not be read, and why.
    retries : int
        Reads that were tried again.
    seconds, read_seconds : float
        Time spent on cutting, and on reading the blocks.
    windows, rows :
        The samples and their rows, where they have to travel.
    """

    rejected: Ints
    unread: Ints
    bad: list[str] = field(default_factory=list)
    retries: int = 0
    seconds: float = 0.0
    read_seconds: float = 0.0
    windows: Mapping[str, npt.NDArray[Any]] | None = None
    rows: Ints | None = None


@dataclass
class Cutter:
    """Cuts the samples of one sequence, transforms them and writes them to their rows.

    Attributes
    ----------
    arrays : sequence of Array
    cuts : sequence of Cut
    axes : sequence of Axis
        The axes of the plan.
    anchor : sequence of int
        Where the anchor lies relative to the start, along each axis.
    places : mapping of str to array
        The coordinate along an axis, for naming a sample in an error.
    fields : mapping of str to (shape, dtype)
        What a sample holds after ``transform``.
    """

    arrays: Sequence[Array]
    cuts: Sequence[Cut]
    axes: Sequence[Axis]
    anchor: Sequence[int]
    places: Mapping[str, npt.NDArray[Any]]
    transform: Transform | None = None
    reject: Reject | None = None
    fields: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)

    @property
    def drops(self) -> bool:
        """Whether samples may turn out not to be there."""
        return self.reject is not None or self.patience.skip

    def boxes(self, items: Ints) -> list[list[Box]]:
        """The whole chunks that hold the windows of each sequence: for each sequence, a box of each array.

        Parameters
        ----------
        items : int64 array, shape (sequences, axes)
        """
        spans = [axis.span(items[:, number]) for number, axis in enumerate(self.axes)]
        columns = [self._ranges(number, spans) for number in range(len(self.arrays))]
        return [
            [tuple((dim[0][s], dim[1][s]) for dim in column) for column in columns]
            for s in range(len(items))
        ]

    def _ranges(self, array: int, spans: Sequence[tuple[Ints, Ints]]) -> list[list[list[int]]]:
        """For each dimension of an array, begin and end of every sequence's box."""
        stored = self.arrays[array]
        count = len(spans[0][0])
        ranges = []
        for dim, chunks in enumerate(stored.chunks):
            low = np.full(count, stored.shape[dim], dtype=np.int64)
            high = np.zeros(count, dtype=np.int64)
            for cut in self.cuts:
                if cut.array != array:
                    continue
                axis = cut.axes[dim]
                if axis is None:
                    low, high = np.zeros_like(low), np.full_like(high, stored.shape[dim])
                else:
                    first, last = spans[axis]
                    low = np.minimum(low, first + cut.offset[dim])
                    high = np.maximum(high, last + cut.offset[dim] + cut.size[dim])
            begin = chunks.start(chunks.index(low))
            end = chunks.start(chunks.index(high - 1) + 1)
            ranges.append([begin.tolist(), end.tolist()])
        return ranges

    def cut(
        self,
        blocks: Sequence[Loaded],
        boxes: Sequence[Box],
        starts: Ints,
        rows: Ints,
        slot: Mapping[str, npt.NDArray[Any]],
        new: Sequence[bool],
    ) -> Report:
        """Write the samples at ``starts`` into the ``rows`` of a slot.

        ``new`` says of each block whether the report is to tell how it was read.
        """
        report = Report(np.empty(0, np.int64), np.empty(0, np.int64))
        for block, tell in zip(blocks, new, strict=True):
            if tell:
                report.retries += block.retries
                report.read_seconds += block.seconds
                report.bad += [f"{spell(box)}: {reason}" for box, reason in block.bad]
        corners = [self._corners(cut, boxes[cut.array], starts) for cut in self.cuts]
        if any(block.bad for block in blocks):
            good = self._readable(blocks, boxes, corners)
            report.unread = rows[~good]
            starts, rows, corners = starts[good], rows[good], [c[good] for c in corners]
        data = [block.data for block in blocks]
        if self.transform is None and self.reject is None:
            for cut, corner in zip(self.cuts, corners, strict=True):
                array, values, out = self.arrays[cut.array], data[cut.array], slot[cut.name]
                for row, at in zip(rows.tolist(), corner.tolist(), strict=True):
                    array.decode(values[_window(at, cut.size)], out[row])
            return report
        rejected = []
        for number, row in enumerate(rows.tolist()):
            sample = {}
            for cut, corner in zip(self.cuts, corners, strict=True):
                array = self.arrays[cut.array]
                value = np.empty(cut.size, array.dtype)
                array.decode(data[cut.array][_window(corner[number].tolist(), cut.size)], value)
                sample[cut.name] = value
            try:
                if self.reject is not None and self.reject(sample):
                    rejected.append(row)
                    continue
                self.write(self.finish(sample), row, slot)
            except Exception as error:
                error.add_note(f"at the sample with its anchor at {self.where(starts[number])}")
                raise
        report.rejected = np.array(rejected, dtype=np.int64)
        return report

    def _readable(
        self, blocks: Sequence[Loaded], boxes: Sequence[Box], corners: Sequence[Ints]
    ) -> npt.NDArray[np.bool_]:
        """Which samples touch nothing that could not be read."""
        good = np.ones(len(corners[0]), dtype=bool)
        for cut, corner in zip(self.cuts, corners, strict=True):
            for bad, _ in blocks[cut.array].bad:
                low = np.array([b[0] - o[0] for b, o in zip(bad, boxes[cut.array], strict=True)])
                high = np.array([b[1] - o[0] for b, o in zip(bad, boxes[cut.array], strict=True)])
                touches = (corner < high) & (corner + np.array(cut.size) > low)
                good &= ~touches.all(axis=1)
        return good

    def finish(self, sample: Sample) -> Mapping[str, npt.NDArray[Any]]:
        """The sample after ``transform``, as arrays."""
        if self.transform is None:
            return sample
        result = self.transform(sample)
        if not isinstance(result, Mapping):
            raise SuperbatchError(
                f"transform returned {type(result).__name__}: it must return the sample, a dict of arrays"
            )
        sample = {}
        for name, value in result.items():
            try:
                sample[name] = np.asarray(value)
            except ValueError as error:  # lists of different lengths
                raise SuperbatchError(
                    f"transform returned {name!r} as a {type(value).__name__} that makes no array ({error}): "
                    f"it must return arrays"
                ) from None
        return sample

    def write(
        self,
        sample: Mapping[str, npt.NDArray[Any]],
        row: int,
        slot: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Put a finished sample into its row, if it is what every sample is."""
        if sample.keys() != self.fields.keys():
            raise SuperbatchError(
                f"transform returned the keys {sorted(sample)} where the first sample had "
                f"{sorted(self.fields)}: it must return the same keys for every sample"
            )
        for name, value in sample.items():
            shape, dtype = self.fields[name]
            if value.shape != shape or value.dtype != dtype:
                raise SuperbatchError(
                    f"transform returned {name!r} as {value.dtype} of shape {value.shape} where the first "
                    f"sample had {dtype} of shape {shape}: it must return the same for every sample"
                )
            slot[name][row] = value

    def where(self, start: Ints) -> str:
        """The anchor of a sample, for people."""
        parts = []
        for axis, at, position in zip(self.axes, self.anchor, start.tolist(), strict=True):
            place = position + at
            known = self.places.get(axis.name)
            value = "" if known is None else f" ({known[place]})"
            parts.append(f"{axis.name}={place}{value}")
        return ", ".join(parts)

    def _corners(self, cut: Cut, box: Box, starts: Ints) -> Ints:
        """Where each window begins inside of the block."""
        corners = np.empty((len(starts), len(cut.axes)), dtype=np.int64)
        for dim, axis in enumerate(cut.axes):
            base = cut.offset[dim] - box[dim][0]
            corners[:, dim] = base if axis is None else starts[:, axis] + base
        return corners


def _window(corner: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(corner, size, strict=True))
