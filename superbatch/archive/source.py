"""ArchiveSource: superbatches out of Zarr archives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive import boxes as bx
from superbatch.archive.align import Grid, align, is_time
from superbatch.archive.arguments import (
    check_windows,
    fields_of,
    is_number,
    one_of,
    per_dimension,
    positive,
)
from superbatch.archive.cut import Cutter, Reject, Sample, Transform
from superbatch.archive.patience import Patience
from superbatch.archive.plan import Plan
from superbatch.archive.sequences import Axis
from superbatch.archive.validity import Allowed, allowed
from superbatch.errors import ArgumentError, shown
from superbatch.memory import parse_bytes
from superbatch.source import Fields, Filler, Settings
from superbatch.window import Window

# Superbatch 0 loads about this much, so that training starts while superbatch 1 is being loaded.
_FIRST_BYTES = 256 << 20
# With memory=: no more sequences than this, since a superbatch that takes minutes to load helps nobody.
_MOST_SEQUENCES = 256
# What a loader process takes without data: Python, Dask, xarray and Zarr, measured as PSS.
PROCESS_BYTES = 200 << 20
# A coordinate longer than this is not sent to the loaders just to word an error.
_LONG = 1 << 20


class ArchiveSource:
    """Samples cut at random from arrays in Zarr archives.

    Parameters
    ----------
    windows : mapping of str to Window
        What a sample is made of, by name. All arrays are on one grid: dimensions of the same name that
        are windowed have the same positions. The first is the reference, whose chunks are loaded in
        sequences and whose time axis gives the anchors.
    samples : int
        Samples in a superbatch.
    sequences : int
        Chunk sequences that a superbatch is drawn from. More of them mix better, and take longer to load.
    chunks_per_sequence : int or mapping of str to int
        Neighbouring chunks that are loaded as one piece: an int counts along the first windowed
        dimension, a mapping along each that it names; along all others it is 1.
    turnover : float
        Share of the sequences that each superbatch replaces, in ``(0, 1]``. Below 1 the others stay in
        memory and are sampled again at new places, which saves reading them. Needs ``coverage="random"``.
    coverage : {"random", "once"}
        ``"random"``: every valid window is equally likely (or by ``weights``) each time, without end.
        ``"once"``: every valid window is served exactly once in an epoch.
    sites : None
        Not supported yet.
    valid : array of bool, callable, or list of slices, optional
        Which anchors may be drawn, along the time axis of the reference (its first windowed dimension
        where it has none): a bool for each, or a function from the coordinates to such bools; or a
        list of slices of the coordinate, inside one of which the whole window has to lie.
    weights : array of float, optional
        How likely each anchor along that axis is, relative to the others. Needs ``coverage="random"``.
    reject : callable, optional
        ``reject(sample) -> bool``: True drops the sample. With ``coverage="random"`` another one is
        drawn from the superbatch's sequences, up to ten times; with ``"once"`` it is left out.
    transform : callable, optional
        ``transform(sample) -> sample``, a dict of arrays to a dict of arrays; runs in the loader.
    memory : str or int, optional
        A limit such as ``"8GB"``: ``samples`` and ``sequences`` are scaled together to the most that fits.

    on_error : {"raise", "skip"}
        What to do where a chunk cannot be read, after the retries: raise what the store or the codec
        raised, or leave out the samples that touch it, as ``reject`` does, and name it in ``stats()``.
        A chunk that is absent is no error: by Zarr's definition it holds the fill value.
    retries : int
        How often a read is tried again after an error that may pass, such as a connection that broke:
        after 0.2, 0.4, 0.8 s and so on.
    read_timeout : float
        Seconds after which one read counts as hanging: an error then names it.

    Raises
    ------
    ArgumentError
        Whatever cannot work, in one sentence.

    Examples
    --------
    >>> import numpy as np, xarray as xr, superbatch as sb
    >>> field = xr.DataArray(np.zeros((100, 32, 32), "f4"), dims=("time", "y", "x"))
    >>> source = sb.ArchiveSource({"field": sb.Window(field, time=4, y=16, x=16)}, samples=64)
    >>> source.describe()["windows"]
    28033
    """

    def __init__(
        self,
        windows: Mapping[str, Window],
        *,
        samples: int = 4096,
        sequences: int = 32,
        chunks_per_sequence: int | Mapping[str, int] = 3,
        turnover: float = 1.0,
        coverage: str = "random",
        sites: None = None,
        valid: npt.ArrayLike | Callable[[Any], Any] | Sequence[slice] | None = None,
        weights: npt.ArrayLike | None = None,
        reject: Reject | None = None,
        transform: Transform | None = None,
        memory: str | int | None = None,
        on_error: str = "raise",
        retries: int = 3,
        read_timeout: float = 120.0,
    ) -> None:
        check_windows(windows)
        positive("samples", samples)
        positive("sequences", sequences)
        one_of("coverage", coverage, ("random", "once"))
        if not is_number(turnover) or not 0 < turnover <= 1:
            raise ArgumentError(
                f"turnover={shown(turnover)} is not a share: write a number above 0 and up to 1"
            )
        if coverage == "once" and turnover < 1:
            raise ArgumentError(
                f'turnover={turnover} needs coverage="random": with "once" no sequence is sampled again'
            )
        if coverage == "once" and weights is not None:
            raise ArgumentError(
                'weights need coverage="random": with "once" every window is served once'
            )
        if sites is not None:
            raise ArgumentError("sites are not supported yet: leave them out")
        for name, function in (("reject", reject), ("transform", transform)):
            if function is not None and not callable(function):
                raise TypeError(
                    f"{name}={shown(function)} is not callable: write a function of a sample"
                )
        one_of("on_error", on_error, ("raise", "skip"))
        if isinstance(retries, bool) or not isinstance(retries, (int, np.integer)) or retries < 0:
            raise ArgumentError(
                f"retries={shown(retries)} is not a number of tries: write an int, 0 or more"
            )
        if not is_number(read_timeout) or not read_timeout > 0:
            raise ArgumentError(
                f"read_timeout={shown(read_timeout)} is not a time: write a number of seconds above 0"
            )
        self._patience = Patience(int(retries), on_error == "skip", float(read_timeout))
        if samples < sequences:
            sequences = samples
        self.samples, self.sequences = int(samples), int(sequences)
        self.turnover, self.coverage = float(turnover), coverage
        self.reject, self.transform = reject, transform
        self.memory = None if memory is None else parse_bytes(memory)
        self.grid: Grid = align(windows)
        self.allowed: dict[str, Allowed] = {}
        self.axes = self._axes(per_dimension(chunks_per_sequence, self.grid), valid, weights)
        self._cutter = self._make_cutter()

    def bind(self, settings: Settings) -> ArchiveFeed:
        """The source for one dataset; called by ``SuperbatchDataset``."""
        batch_size = settings.batch_size
        if batch_size is None:
            raise ArgumentError(
                "batch_size=None needs a stream: write a number of samples, such as batch_size=32"
            )
        samples, sequences = self._sizes(settings.loaders, settings.threads)
        if batch_size > samples:
            raise ArgumentError(
                f"batch_size={batch_size} is larger than the superbatch of samples={samples}: write "
                f"batch_size={samples} or less, or samples={batch_size} or more"
            )
        if self._cutter.drops and self.coverage == "once" and settings.world_size > 1:
            name = "reject" if self.reject is not None else 'on_error="skip"'
            raise ArgumentError(
                f'{name} with coverage="once" would give the ranks unequal numbers of batches: use '
                'valid= to rule windows out beforehand, or coverage="random"'
            )
        first = max(1, _FIRST_BYTES // max(1, self.sequence_bytes))
        plan = Plan(
            self.axes,
            samples=samples // batch_size * batch_size,
            sequences=sequences,
            batch_size=batch_size,
            coverage=self.coverage,
            turnover=self.turnover,
            first=first,
            shuffle=settings.shuffle,
            seed=settings.seed,
            rank=settings.rank,
            world_size=settings.world_size,
        )
        return ArchiveFeed(plan, self._cutter, settings.threads, settings.dask)

    @property
    def fields(self) -> Fields:
        """Shape and dtype of each array of a sample, after ``transform``."""
        return self._cutter.fields

    @property
    def sequence_bytes(self) -> int:
        """Bytes that a chunk sequence takes in memory."""
        return sum(
            math.prod(bx.shape(box)) * array.raw_dtype.itemsize
            for array, box in zip(self.grid.arrays, self._typical_boxes(), strict=True)
        )

    def describe(self) -> dict[str, Any]:
        """What will be drawn from what, for people: windows, why others are ruled out, sizes in bytes."""
        sample = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.fields.values())
        samples, sequences = self._sizes(1, 1)
        return {
            "windows": math.prod(axis.total for axis in self.axes),
            "windows_by_dimension": {axis.name: axis.total for axis in self.axes},
            "ruled_out": {name: a.ruled_out for name, a in self.allowed.items() if a.ruled_out},
            "samples": samples,
            "sequences": sequences,
            "sample_bytes": sample,
            "sequence_bytes": self.sequence_bytes,
            "arrays": {array.name: array.describe() for array in self.grid.arrays},
        }

    def _axes(
        self,
        per_sequence: Mapping[str, int],
        valid: Any,
        weights: npt.ArrayLike | None,
    ) -> list[Axis]:
        timed = [d.name for d in self.grid.dimensions if is_time(d.coordinate)]
        chosen = timed[0] if timed else self.grid.dimensions[0].name
        axes = []
        for dimension in self.grid.dimensions:
            mine = dimension.name == chosen
            if dimension.width > dimension.length:
                raise ArgumentError(
                    f"the windows together are {dimension.width} long in {dimension.name!r}, where the array "
                    f"has {dimension.length}: no window fits; shorten them"
                )
            found = allowed(dimension, valid if mine else None, weights if mine else None)
            self.allowed[dimension.name] = found
            axis = Axis(
                dimension.name,
                self.grid.arrays[dimension.reference].chunks[
                    self.grid.arrays[dimension.reference].dims.index(dimension.name)
                ],
                dimension.width,
                per_sequence[dimension.name],
                found.starts,
                found.weights,
            )
            if axis.total == 0:
                reasons = ", ".join(f"{n} by {reason}" for reason, n in found.ruled_out.items())
                raise ArgumentError(
                    f"no window of length {dimension.width} is left along {dimension.name!r} with its "
                    f"{dimension.length} positions (ruled out: {reasons}): allow more, or shorten the window"
                )
            axes.append(axis)
        return axes

    def _make_cutter(self) -> Cutter:
        places = {
            d.name: d.coordinate
            for d in self.grid.dimensions
            if d.coordinate is not None and d.length <= _LONG
        }
        cutter = Cutter(
            self.grid.arrays,
            self.grid.cuts,
            self.axes,
            [-d.low for d in self.grid.dimensions],
            places,
            self.transform,
            self.reject,
            {cut.name: (cut.size, self.grid.arrays[cut.array].dtype) for cut in self.grid.cuts},
            self._patience,
        )
        if self.transform is not None:
            cutter.fields = fields_of(cutter.finish(self._first_sample()))
        return cutter

    def _first_sample(self) -> Sample:
        """The first valid window, really read: what ``transform`` returns for it fixes the slot."""
        zero = np.zeros(1, dtype=np.int64)
        start = [int(axis.start(zero)[0]) for axis in self.axes]
        sample: Sample = {}
        for cut in self.grid.cuts:
            array = self.grid.arrays[cut.array]
            box = tuple(
                (offset, offset + size)
                if axis is None
                else (start[axis] + offset, start[axis] + offset + size)
                for axis, offset, size in zip(cut.axes, cut.offset, cut.size, strict=True)
            )
            value = np.empty(cut.size, array.dtype)
            array.decode(array.read(box), value)
            sample[cut.name] = value
        return sample

    def _typical_boxes(self) -> list[bx.Box]:
        half = np.array([0.5])
        items = [axis.owner(axis.start(axis.locate(half))) for axis in self.axes]
        return self._cutter.boxes(np.stack(items, axis=-1))[0]

    def _sizes(self, loaders: int, threads: int) -> tuple[int, int]:
        """Samples and sequences of a superbatch, within ``memory``."""
        if self.memory is None:
            return self.samples, self.sequences
        sample = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.fields.values())
        each = self.samples / self.sequences
        fixed = PROCESS_BYTES * loaders
        slots = (loaders + 1) * each * sample
        kept = self.turnover < 1 or self._cutter.drops
        loaded = self.sequence_bytes * loaders
        if not kept:
            fixed += loaded * (threads + 1)
        per_sequence = slots + (loaded if kept else 0)
        fits = int((self.memory - fixed) // per_sequence)
        if fits < 1:
            need = (fixed + per_sequence) / 1e6
            raise ArgumentError(
                f"memory={self.memory / 1e6:.0f} MB is too little for one sequence, which takes {need:.0f} MB "
                f"in all: give more, or shorten chunks_per_sequence"
            )
        sequences = min(fits, _MOST_SEQUENCES)
        return max(1, round(each * sequences)), sequences


@dataclass
class ArchiveFeed:
    """An :class:`ArchiveSource` bound to one dataset; sent to the loaders."""

    plan: Plan
    cutter: Cutter
    threads: int
    dask: Any = None

    @property
    def fields(self) -> Fields:
        return self.cutter.fields

    @property
    def samples(self) -> int:
        most = self.plan.samples
        return most if self.plan.epoch_samples is None else min(most, self.plan.epoch_samples)

    def superbatches(self, epoch: int) -> int | None:
        return self.plan.epoch_superbatches

    def batches(self, epoch: int, index: int) -> int:
        return self.plan.batches(index)

    def batch_sizes(self, epoch: int, index: int, samples: int) -> Sequence[int]:
        """Full batches, but each that is planned keeps at least one sample."""
        size = self.plan.batch_size
        if samples < self.plan.size(index):  # reject has left some out
            return [size] * (samples // size) + ([samples % size] if samples % size else [])
        return self.plan.batch_sizes(index)

    def epoch_batches(self) -> int | None:
        return self.plan.epoch_batches

    def fingerprint(self) -> Mapping[str, Any]:
        plan = self.plan
        return {
            "samples": plan.samples,
            "sequences": plan.sequences,
            "batch_size": plan.batch_size,
            "coverage": plan.coverage,
            "shuffle": plan.shuffle,
            "replaced": plan.replaced,
            "windows": plan.total,
            "drawn_from": plan.digest(),
            "seed": plan.seed,
            "rank": plan.rank,
            "world_size": plan.world_size,
        }

    def open(self) -> Filler:
        from superbatch.archive.filler import ArchiveFiller

        return ArchiveFiller(self.plan, self.cutter, self.threads, self.dask)
