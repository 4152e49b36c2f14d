"""Cutting samples out of loaded blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.anchors import Anchors, Extra
from superbatch.archive.arrays import Array
from superbatch.archive.boxes import Box
from superbatch.archive.crop import Crop, Cut, corners_of, needs
from superbatch.archive.lookup import Span
from superbatch.archive.patience import Loaded, Patience, spell
from superbatch.errors import SuperbatchError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Sample = dict[str, npt.NDArray[Any]]
Transform = Callable[[Sample], Mapping[str, Any]]
Reject = Callable[[Sample], bool]


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
    seconds, read_seconds, fetch_seconds : float
        Time spent on cutting, on reading the blocks, and of that on waiting for bytes.
    windows, rows :
        The samples and their rows, where they have to travel.
    """

    rejected: Ints
    unread: Ints
    bad: list[str] = field(default_factory=list)
    retries: int = 0
    seconds: float = 0.0
    read_seconds: float = 0.0
    fetch_seconds: float = 0.0
    windows: Mapping[str, npt.NDArray[Any]] | None = None
    rows: Ints | None = None

    def __sizeof__(self) -> int:
        """Bytes in memory, for Dask."""
        windows = (self.windows or {}).values()
        return object.__sizeof__(self) + sum(values.nbytes for values in windows)


@dataclass
class Cutter:
    """Cuts the samples of one sequence, transforms them and writes them to their rows.

    Attributes
    ----------
    arrays : sequence of Array
    cuts : sequence of Cut
    anchors : Anchors
        From the starts of the plan to anchors.
    extras : sequence of Extra
        What else of the anchor goes into a sample.
    fields : mapping of str to (shape, dtype)
        What a sample holds after ``transform``.
    """

    arrays: Sequence[Array]
    cuts: Sequence[Cut]
    anchors: Anchors
    extras: Sequence[Extra] = ()
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
        spans = self.anchors.spans(items)
        columns = [self._ranges(number, spans) for number in range(len(self.arrays))]
        return [
            [tuple((dim[0][s], dim[1][s]) for dim in column) for column in columns]
            for s in range(len(items))
        ]

    def _ranges(self, array: int, spans: Sequence[Span]) -> list[list[list[int]]]:
        """For each dimension of an array, begin and end of every sequence's box."""
        stored = self.arrays[array]
        count = len(spans[0][0])
        ranges = []
        for dim, chunks in enumerate(stored.chunks):
            length = stored.shape[dim]
            low = np.full(count, length - 1, dtype=np.int64)
            high = np.zeros(count, dtype=np.int64)
            for cut in self.cuts:
                if cut.array == array:
                    first, last = needs(cut, dim, length, spans)
                    low, high = np.minimum(low, first), np.maximum(high, last)
            # A window that reaches over the edge needs what there is.
            low, high = np.clip(low, 0, length - 1), np.clip(high, 1, length)
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
        noise: Floats | None = None,
    ) -> Report:
        """Write the samples at ``starts`` into the ``rows`` of a slot.

        Parameters
        ----------
        blocks, boxes : sequence
            What is loaded of each array, and which part of it that is.
        starts : int64 array, shape (n, axes)
        rows : int64 array, shape (n,)
        slot : mapping of str to array
        new : sequence of bool
            Of each block: whether the report is to tell how it was read.
        noise : float64 array, shape (n, 2), optional
            A number in [0, 1) for each sample's delay and one for its dropouts.
        """
        report = Report(np.empty(0, np.int64), np.empty(0, np.int64))
        for block, tell in zip(blocks, new, strict=True):
            if tell:
                report.retries += block.retries
                report.read_seconds += block.seconds
                report.fetch_seconds += block.fetch_seconds
                report.bad += [f"{spell(box)}: {reason}" for box, reason in block.bad]
        if noise is None:
            noise = np.zeros((len(starts), 2))
        each = self.anchors.each
        anchors, noise = self.anchors.of(starts), np.repeat(noise, each, axis=0)
        corners = [corners_of(cut, boxes[cut.array], anchors) for cut in self.cuts]
        if any(block.bad for block in blocks):
            readable = self._readable(blocks, boxes, corners, anchors, noise)
            good = readable.reshape(-1, each).all(axis=1)
            report.unread = rows[~good]
            starts, rows, good = starts[good], rows[good], np.repeat(good, each)
            anchors, noise, corners = anchors[good], noise[good], [c[good] for c in corners]
        crops = [
            Crop(cut, self.arrays[cut.array], blocks[cut.array].data, boxes[cut.array])
            for cut in self.cuts
        ]
        if self.transform is None and self.reject is None:
            self._write_all(crops, corners, anchors, noise, rows, slot)
            return report
        rejected = []
        room = {name: np.empty((1, *s), d) for name, (s, d) in self.raw_fields().items()}
        for number, row in enumerate(rows.tolist()):
            one = slice(number * each, (number + 1) * each)
            self._write_all(
                crops, [c[one] for c in corners], anchors[one], noise[one], np.zeros(1, int), room
            )
            sample: Sample = {name: values[0].copy() for name, values in room.items()}
            try:
                if self.reject is not None and self.reject(sample):
                    rejected.append(row)
                    continue
                self.write(self.finish(sample), row, slot)
            except Exception as error:
                where = self.anchors.where(starts[number])
                error.add_note(f"at the sample with its anchor at {where}")
                raise
        report.rejected = np.array(rejected, dtype=np.int64)
        return report

    def _write_all(
        self,
        crops: Sequence[Crop],
        corners: Sequence[Ints],
        anchors: Ints,
        noise: Floats,
        rows: Ints,
        slot: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Write samples as they are before ``transform``."""
        each = self.anchors.each
        if each > 1 or self.anchors.every is not None:
            # The anchors of a sample are neighbours, in the slot as among the anchors.
            slot = {
                name: slot[name].reshape(-1, *slot[name].shape[2:]) for name in self.raw_fields()
            }
            rows = (rows[:, None] * each + np.arange(each)).reshape(-1)
        for crop, corner in zip(crops, corners, strict=True):
            crop.cut_all(corner, anchors, noise, rows, slot)
        for extra in self.extras:
            slot[extra.name][rows] = extra.of(anchors, noise)

    def _readable(
        self,
        blocks: Sequence[Loaded],
        boxes: Sequence[Box],
        corners: Sequence[Ints],
        anchors: Ints,
        noise: Floats,
    ) -> npt.NDArray[np.bool_]:
        """Which samples touch nothing that could not be read."""
        good = np.ones(len(anchors), dtype=bool)
        for cut, corner in zip(self.cuts, corners, strict=True):
            for bad, _ in blocks[cut.array].bad:
                low = np.array([b[0] - o[0] for b, o in zip(bad, boxes[cut.array], strict=True)])
                high = np.array([b[1] - o[0] for b, o in zip(bad, boxes[cut.array], strict=True)])
                touches = (corner < high) & (corner + np.array(cut.size) > low)
                if cut.points is not None:
                    points = cut.points
                    variant = points.variants(noise[:, 0])
                    at = anchors[:, points.column]
                    for dim, table in (
                        (points.run_dim, points.run),
                        (points.step_dim, points.step),
                    ):
                        used = table[variant, at]
                        begin, end = bad[dim]
                        extra = int(points.before and dim == points.step_dim)
                        touches[:, dim] = ((used < end) & (used >= begin - extra)).any(axis=1)
                good &= ~touches.all(axis=1)
        return good

    @property
    def noisy(self) -> bool:
        """Whether samples depend on random numbers of their own."""
        return any(
            cut.values.dropout > 0 or (cut.points is not None and len(cut.points.thresholds))
            for cut in self.cuts
        )

    def one(self, start: Ints) -> Sample:
        """The sample whose window begins at ``start``, shape (axes,), read now and by itself."""
        anchors = self.anchors.of(start[None])
        noise = np.ones((len(anchors), 2))  # no dropout, no further delay
        spans = [(c.min(keepdims=True), c.max(keepdims=True)) for c in anchors.T]
        room = {name: np.empty((1, *s), d) for name, (s, d) in self.raw_fields().items()}
        crops, corners = [], []
        for cut in self.cuts:
            array = self.arrays[cut.array]
            box = []
            for dim, length in enumerate(array.shape):
                low, high = needs(cut, dim, length, spans)
                box.append((int(np.clip(low[0], 0, length - 1)), int(np.clip(high[0], 1, length))))
            crops.append(Crop(cut, array, array.read(tuple(box)), tuple(box)))
            corners.append(corners_of(cut, tuple(box), anchors))
        self._write_all(crops, corners, anchors, noise, np.zeros(1, int), room)
        return {name: values[0] for name, values in room.items()}

    def raw_fields(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """What a sample holds before ``transform``."""
        fields: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for cut in self.cuts:
            fields.update(cut.fields())
        fields.update({extra.name: extra.field for extra in self.extras})
        if self.anchors.every is not None:
            return {name: ((self.anchors.each, *s), d) for name, (s, d) in fields.items()}
        return fields

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
