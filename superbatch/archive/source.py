"""ArchiveSource: superbatches out of Zarr archives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from superbatch.archive import boxes as bx
from superbatch.archive.align import align
from superbatch.archive.arguments import (
    check_coverage,
    check_functions,
    check_windows,
    fields_of,
    patience,
    per_dimension,
    positive,
)
from superbatch.archive.axes import make_axes
from superbatch.archive.budget import Budget
from superbatch.archive.cut import Cutter, Reject, Transform
from superbatch.archive.extras import extras
from superbatch.archive.feed import ArchiveFeed
from superbatch.archive.grid import Grid
from superbatch.archive.plan import Plan
from superbatch.archive.sites import Sites
from superbatch.errors import ArgumentError, shown
from superbatch.memory import parse_bytes
from superbatch.source import Fields, Settings
from superbatch.window import Window

# Superbatch 0 loads about this much, so that training starts while superbatch 1 is being loaded.
_FIRST_BYTES = 256 << 20


class ArchiveSource:
    """Samples cut at random from arrays in Zarr archives.

    Parameters
    ----------
    windows : mapping of str to Window
        What a sample is made of, by name. The first is the reference: its chunks are loaded in sequences, its
        time axis gives the anchors' times and, without ``sites``, its pixels their places. The others are
        cut around the same anchor, each on its own grid and at its own step.
    samples : int
        Samples in a superbatch.
    sequences : int
        Chunk sequences that a superbatch is drawn from. More of them mix better, and take longer to load. With
        room for all that there are, they stay in memory, and the archive is read once.
    chunks_per_sequence : int or mapping of str to int
        Neighbouring chunks that are loaded as one piece: an int counts along the first windowed
        dimension, a mapping along each that it names; along all others it is 1.
    turnover : float
        Share of the sequences that each superbatch replaces, in ``(0, 1]``. Below 1 the others stay in
        memory and are sampled again at new places, which saves reading them. Needs ``coverage="random"``.
    coverage : {"random", "once"}
        ``"random"``: every valid window is equally likely (or by ``weights``) each time, without end.
        ``"once"``: every valid window is served exactly once in an epoch.
    sites : xarray.Dataset or "all", optional
        Places that samples are cut around: numeric variables by one dimension, called as the dimensions (or
        2-d coordinates) of the arrays that they place windows in, such as ``x`` and ``y``. The
        coordinate of that dimension names the sites; ``attrs["crs"]`` is their projection. Without, a place is a
        pixel of the reference. ``"all"``: the sites of the first array with a dimension ``HERE``, placed by its
        coordinates, all of them at one time in each sample: every array of the batch then has a
        dimension of sites after that of samples.
    valid : array of bool, callable, or list of slices, optional
        Which anchors may be drawn, along the time axis of the reference (its first windowed dimension
        where it has none): a bool for each, or a function from the coordinates to such bools; or a
        list of slices of the coordinate, inside one of which the windows of all arrays have to lie.
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

    include : str or iterable of str
        What else goes into the batch: the anchor's coordinates by name (``"time"`` as int64 nanoseconds since
        1970, ``"y"``, ``"x"``, ``"site"``; strings come as a list), and of a forecast ``"<name>_time"``, its valid
        times, and ``"<name>_run"``, the times of its runs.

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
        sites: xr.Dataset | str | None = None,
        valid: npt.ArrayLike | Callable[[Any], Any] | Sequence[slice] | None = None,
        weights: npt.ArrayLike | None = None,
        reject: Reject | None = None,
        transform: Transform | None = None,
        memory: str | int | None = None,
        on_error: str = "raise",
        retries: int = 3,
        read_timeout: float = 120.0,
        include: str | Iterable[str] = (),
    ) -> None:
        include = include if isinstance(include, str) else tuple(include)
        # as it was given, for replace()
        self._given = {name: value for name, value in locals().items() if name != "self"}
        check_windows(windows)
        positive("samples", samples)
        positive("sequences", sequences)
        check_coverage(coverage, turnover, weights)
        check_functions(reject=reject, transform=transform)
        self._patience = patience(on_error, retries, read_timeout)
        self.chunks_per_sequence = chunks_per_sequence
        self.samples, self.sequences = int(samples), int(min(sequences, samples))
        self.turnover, self.coverage = float(turnover), coverage
        self.reject, self.transform = reject, transform
        self.memory = None if memory is None else parse_bytes(memory)
        if isinstance(sites, str):
            if sites != "all":
                raise ArgumentError(
                    f'sites={shown(sites)} is not known: write "all", or a Dataset of places'
                )
            places: Sites | None = Sites.all_of(windows)
        else:
            places = None if sites is None else Sites(sites)
        self.grid: Grid = align(windows, places)
        per_sequence = per_dimension(chunks_per_sequence, [d.name for d in self.grid.dimensions])
        self._anchors, self.allowed = make_axes(
            self.grid, per_sequence, valid, weights, all_sites=isinstance(sites, str)
        )
        self.axes = self._anchors.axes
        self._cutter = Cutter(
            self.grid.arrays,
            self.grid.cuts,
            self._anchors,
            extras(include, self.grid),
            transform,
            reject,
            patience=self._patience,
        )
        self._cutter.fields = self._cutter.raw_fields()
        if transform is not None:
            # The first valid window is really read: what comes back for it fixes the slot.
            zero = np.zeros(1, dtype=np.int64)
            start = np.array([int(axis.start(zero)[0]) for axis in self.axes])
            self._cutter.fields = fields_of(self._cutter.finish(self._cutter.one(start)))

    def replace(self, **settings: Any) -> ArchiveSource:
        """The same source with some arguments of the constructor changed.

        Parameters
        ----------
        **settings
            As the constructor takes them.

        Returns
        -------
        ArchiveSource

        Examples
        --------
        >>> import numpy as np, xarray as xr, superbatch as sb
        >>> field = xr.DataArray(np.zeros((100, 8), "f4"), dims=("time", "x"))
        >>> source = sb.ArchiveSource({"field": sb.Window(field, time=4)}, samples=64)
        >>> source.replace(samples=32).describe()["samples"]
        32
        """
        return ArchiveSource(**{**self._given, **settings})

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

    def describe(self, loaders: int = 1, threads: int = 1) -> dict[str, Any]:
        """What will be drawn from what, for people, and what it takes.

        Parameters
        ----------
        loaders, threads : int
            As the dataset will be given them: memory depends on them.

        Returns
        -------
        dict
            ``windows`` (in all, and by dimension), ``ruled_out`` (by dimension and reason), ``when`` (likewise: the
            longest runs of anchors that were, as text), ``samples`` and
            ``sequences`` of a superbatch, ``sample_bytes``, ``sequence_bytes``, ``memory_bytes`` (predicted
            for slots, loaded sequences and loader processes), ``arrays`` (how each is read).
        """
        samples, sequences = self._sizes(loaders, threads)
        budget = self._budget(loaders, threads)
        return {
            "windows": math.prod(axis.total for axis in self.axes),
            "windows_by_dimension": {axis.name: axis.total for axis in self.axes},
            "ruled_out": {
                **{name: a.ruled_out for name, a in self.allowed.items() if a.ruled_out},
                **({"pairs": self.grid.joint_reasons} if self.grid.joint_reasons else {}),
            },
            "when": {
                **{name: a.when for name, a in self.allowed.items() if a.ruled_out},
                **({"pairs": self.grid.joint_when} if self.grid.joint_when else {}),
            },
            "samples": samples,
            "sequences": sequences,
            "sample_bytes": budget.sample_bytes,
            "sequence_bytes": budget.sequence_bytes,
            "memory_bytes": budget.bytes(samples, sequences),
            "arrays": {array.name: array.describe() for array in self.grid.arrays},
        }

    def _typical_boxes(self) -> list[bx.Box]:
        half = np.array([0.5])
        items = [axis.owner(axis.start(axis.locate(half))) for axis in self.axes]
        return self._cutter.boxes(np.stack(items, axis=-1))[0]

    def _budget(self, loaders: int, threads: int) -> Budget:
        sample = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.fields.values())
        kept = self.turnover < 1 or self._cutter.drops
        existing = math.prod(axis.groups().items for axis in self.axes)
        return Budget(sample, self.sequence_bytes, kept, loaders, threads, existing)

    def _sizes(self, loaders: int, threads: int) -> tuple[int, int]:
        """Samples and sequences of a superbatch, within ``memory``."""
        if self.memory is None:
            return self.samples, self.sequences
        return self._budget(loaders, threads).fit(self.memory, self.samples, self.sequences)
