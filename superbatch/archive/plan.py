"""Which windows go into which superbatch: a pure function that touches no data.

``Plan.superbatch(epoch, index)`` depends on nothing but its arguments and the plan's own settings. The
number of loaders, of threads and of machines, and what was served before, do not enter.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

import numpy as np
import numpy.typing as npt

from superbatch import permute, seeds
from superbatch.archive.coverage import Once
from superbatch.archive.joint import JointAxis
from superbatch.archive.sequences import Axis
from superbatch.errors import ArgumentError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SuperbatchPlan:
    """The samples of one superbatch.

    Attributes
    ----------
    starts : int64 array, shape (samples, axes)
        Where each sample's window begins; the row number is the sample's place in the slot.
    sequences : int64 array, shape (sequences, axes)
        The items of the chunk sequences that are loaded, in the order of loading.
    sequence_of : int64 array, shape (samples,)
        Which of ``sequences`` each sample is cut from.
    noise_key : int
        What the rows' own random numbers follow from.
    """

    epoch: int
    index: int
    starts: Ints
    sequences: Ints
    sequence_of: Ints
    noise_key: int = 0

    def noise(self, rows: Ints) -> npt.NDArray[np.float64]:
        """Two numbers in [0, 1) for each row, shape (n, 2): for delays, and for dropout."""
        lanes = rows.astype(np.uint64)[:, None] * np.uint64(2) + np.arange(2).astype(np.uint64)
        with np.errstate(over="ignore"):
            bits = seeds.mix(np.uint64(self.noise_key) + seeds.mix(lanes)) >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53

    def rows(self) -> list[Ints]:
        """For each sequence, the rows of its samples."""
        order = np.argsort(self.sequence_of, kind="stable")
        edges = np.searchsorted(self.sequence_of[order], np.arange(len(self.sequences) + 1))
        return [order[a:b] for a, b in itertools.pairwise(edges)]


class Plan:
    """The samples of every superbatch of every epoch, for one rank.

    Parameters
    ----------
    axes : sequence of Axis
        The windowed dimensions, the reference's first.
    samples : int
        Samples in a full superbatch; a multiple of ``batch_size``.
    sequences : int
        Chunk sequences that a superbatch is drawn from.
    batch_size : int
    coverage : {"random", "once"}
    turnover : float
        Share of the sequences that are new in each superbatch.
    first : int
        Sequences of superbatch 0, which may be smaller so that training starts sooner. Those after it have
        twice as many as the one before, up to ``sequences``: two passes over one last until the
        next is loaded, where training on a batch takes as long as loading it.
    shuffle : bool
    seed, rank, world_size : int

    Attributes
    ----------
    total : int
        Valid windows.
    all_fit : bool
        Whether a superbatch has room for every sequence that there is.
    """

    def __init__(
        self,
        axes: Sequence[Axis | JointAxis],
        *,
        samples: int,
        sequences: int,
        batch_size: int,
        coverage: str = "random",
        turnover: float = 1.0,
        first: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.axes = tuple(axes)
        self.samples, self.sequences, self.batch_size = samples, sequences, batch_size
        self.coverage, self.shuffle = coverage, shuffle
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.total = math.prod(axis.total for axis in self.axes)
        if self.total == 0:
            raise ArgumentError("no window is valid: nothing can be drawn")
        if self.total > 2**62:
            raise ArgumentError(f"{self.total} windows are more than can be numbered (2**62)")
        self.replaced = max(1, round(turnover * sequences))
        doubled = itertools.accumulate(itertools.repeat(2), mul, initial=first or sequences)
        self._growing = tuple(itertools.takewhile(lambda n: n < sequences, doubled))
        # Batches in those that are smaller, and before each of them and the first that is full.
        self._grown = [max(1, samples * n // sequences // batch_size) for n in self._growing]
        self._before = list(itertools.accumulate(self._grown, initial=0))
        # With room for every sequence there is, samples are drawn straight from all windows.
        self.all_fit = math.prod(axis.groups().items for axis in self.axes) <= sequences
        if coverage == "once":
            if world_size > self.total:
                raise ArgumentError(
                    f"{world_size} ranks cannot share {self.total} valid windows without repeating one: "
                    f'use fewer ranks or coverage="random"'
                )
            self._once = Once(self.axes, max(1, samples // sequences), shuffle)
            share, extra = divmod(self.total, world_size)
            if batch_size == 1 and extra:
                raise ArgumentError(
                    f"{self.total} valid windows in batches of 1 cannot give {world_size} ranks equally many "
                    f'batches: write batch_size=2 or more, or coverage="random"'
                )
            self._begin = rank * share + min(rank, extra)
            self._mine = share + (rank < extra)
            self._batches = -(-self.total // (batch_size * world_size))

    def digest(self) -> str:
        """Sixteen characters that stand for the axes: where they differ, so do the samples."""
        known = hashlib.sha256(repr((self._grown, self._growing)).encode())
        for axis in self.axes:
            known.update(axis.tobytes())
        return known.hexdigest()[:16]

    @property
    def small(self) -> int:
        """How many superbatches at the beginning of an epoch are smaller than the others."""
        return len(self._growing)

    # -- how many --------------------------------------------------------------------------------

    @property
    def epoch_samples(self) -> int | None:
        """Fresh samples of this rank in an epoch; None where it does not end."""
        return self._mine if self.coverage == "once" else None

    @property
    def epoch_batches(self) -> int | None:
        """Fresh batches in an epoch, the same on all ranks; None where it does not end."""
        return self._batches if self.coverage == "once" else None

    @property
    def epoch_superbatches(self) -> int | None:
        """Superbatches in an epoch, the same on all ranks; None where it does not end."""
        if self.coverage != "once":
            return None
        begun = sum(before < self._batches for before in self._before[:-1])
        rest = self._batches - self._before[-1]
        return begun + max(0, -(-rest // (self.samples // self.batch_size)))

    def batches(self, index: int) -> int:
        """Batches of superbatch ``index``, the same on all ranks."""
        full = self._grown[index] if self._grows(index) else self.samples // self.batch_size
        if self.coverage != "once":
            return full
        return max(0, min(full, self._batches - self._batches_before(index)))

    def size(self, index: int) -> int:
        """Samples of superbatch ``index``."""
        if self.coverage != "once":
            return self.batches(index) * self.batch_size
        begin, end = self._range(index)
        return end - begin

    def batch_sizes(self, index: int) -> list[int]:
        """Samples in each batch of superbatch ``index``.

        All are full, but where a rank has fewer samples than another the last batches are smaller, so
        that each holds at least one.
        """
        sizes, left = [], self.size(index)
        for later in reversed(range(self.batches(index))):
            sizes.append(min(self.batch_size, left - later))
            left -= sizes[-1]
        return sizes

    def _batches_before(self, index: int) -> int:
        if self._grows(index):
            return self._before[index]
        return self._before[-1] + (index - len(self._grown)) * (self.samples // self.batch_size)

    def _grows(self, index: int) -> bool:
        """Whether superbatch ``index`` is one of the first, which are smaller."""
        return index < len(self._growing)

    def _range(self, index: int) -> tuple[int, int]:
        """The part of this rank's windows that superbatch ``index`` holds."""
        before = self._batches_before(index)
        after = before + self.batches(index)
        return self._samples_in(before), self._samples_in(after)

    def _samples_in(self, batches: int) -> int:
        # Batches are full, but each that is still to come on any rank keeps at least one sample:
        # so ranks whose shares differ by one sample make the same number of batches.
        return min(batches * self.batch_size, self._mine - (self._batches - batches))

    # -- which -----------------------------------------------------------------------------------

    def superbatch(self, epoch: int, index: int) -> SuperbatchPlan:
        """The samples of superbatch ``index`` of ``epoch``."""
        rng = seeds.generator(self.seed, "windows", epoch, index, self.rank)
        if self.coverage == "once":
            begin, end = self._range(index)
            place = self._begin + np.arange(begin, end, dtype=np.int64)
            ordinals = self._once.windows(place, self.seed, epoch)
            starts = self._starts(ordinals)
        elif self.all_fit and not self._grows(index):
            size = self.size(index)
            starts = self._starts(
                np.stack([axis.locate(rng.random(size)) for axis in self.axes], axis=-1)
            )
        else:
            return self._drawn(epoch, index, rng)
        owners = np.stack([a.owner(starts[:, i]) for i, a in enumerate(self.axes)], axis=-1)
        sequences, sequence_of = distinct(owners)
        return self._placed(epoch, index, starts, sequences, sequence_of)

    def _drawn(self, epoch: int, index: int, rng: np.random.Generator) -> SuperbatchPlan:
        hits = self.hits(epoch, index)
        size = self.size(index)
        # Every sequence that was hit gives the same number of samples; who gives the remainder is drawn.
        share, extra = divmod(size, len(hits))
        counts = np.full(len(hits), share, dtype=np.int64)
        counts[rng.permutation(len(hits))[:extra]] += 1
        if share == 0:  # fewer samples than hits: a sequence that gives none is not loaded
            hits, counts = hits[counts > 0], counts[counts > 0]
        sequences, which = distinct(hits)
        sequence_of = np.repeat(which, counts)
        starts = self._inside(sequences[sequence_of], rng)
        return self._placed(epoch, index, starts, sequences, sequence_of)

    def hits(self, epoch: int, index: int) -> Ints:
        """The sequences of superbatch ``index``, one row of items for each; they may repeat.

        A sequence is hit with the probability that a window drawn at random belongs to it. The hits
        of an epoch are one stream that superbatches slide over by ``replaced`` at a time: what
        they share stays in memory. Along the first axis the stream is a scrambled low-discrepancy
        sequence, so that each superbatch spans the whole archive and no part is left out for long.
        """
        count = self._growing[index] if self._grows(index) else self.sequences
        number = index * self.replaced + np.arange(count, dtype=np.int64)
        columns = []
        for i, axis in enumerate(self.axes):
            rng_key = seeds.key(self.seed, "hits", epoch, self.rank, i)
            noise = seeds.mix(np.uint64(rng_key) + seeds.mix(number.astype(np.uint64)))
            if i == 0:
                high = permute.scrambled(number, rng_key)
                bits = (high << np.uint64(21)) | (noise >> np.uint64(43))
            else:
                bits = noise >> np.uint64(11)
            u = bits.astype(np.float64) * 2.0**-53
            columns.append(axis.owner(axis.start(axis.locate(u))))
        return np.stack(columns, axis=-1)

    def again(self, plan: SuperbatchPlan, rows: Ints, attempt: int) -> tuple[Ints, Ints]:
        """New windows for some rows, out of the sequences that the superbatch has loaded.

        Returns
        -------
        starts : int64 array, shape (rows, axes)
        sequence_of : int64 array, shape (rows,)
        """
        rng = seeds.generator(self.seed, "retry", plan.epoch, plan.index, self.rank, attempt)
        sequence_of = plan.sequence_of[rng.integers(0, len(plan.sequence_of), len(rows))]
        return self._inside(plan.sequences[sequence_of], rng), sequence_of

    def _inside(self, items: Ints, rng: np.random.Generator) -> Ints:
        """One window of each given sequence."""
        ordinals = []
        for i, axis in enumerate(self.axes):
            low, high = axis.bounds(items[:, i])
            ordinals.append(axis.draw(low, high, rng))
        return self._starts(np.stack(ordinals, axis=-1))

    def _starts(self, ordinals: Ints) -> Ints:
        return np.stack([a.start(ordinals[:, i]) for i, a in enumerate(self.axes)], axis=-1)

    def _placed(
        self, epoch: int, index: int, starts: Ints, sequences: Ints, sequence_of: Ints
    ) -> SuperbatchPlan:
        """Give every sample its row: shuffled, so that the slot read in order is a shuffled pass."""
        if self.shuffle:
            rng = seeds.generator(self.seed, "rows", epoch, index, self.rank)
            order = rng.permutation(len(starts))
            starts, sequence_of = starts[order], sequence_of[order]
        noise_key = seeds.key(self.seed, "noise", epoch, index, self.rank)
        return SuperbatchPlan(epoch, index, starts, sequences, sequence_of, noise_key)


def distinct(rows: Ints) -> tuple[Ints, Ints]:
    """The distinct rows, in ascending order, and which of them each row is.

    What ``np.unique(rows, axis=0)`` gives, in a fifth of the time: that one compares rows byte by byte.
    """
    code = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        values, place = np.unique(column, return_inverse=True)
        # Ranks below the number of rows, so that a code fits for any number of columns.
        _, first, code = np.unique(
            code * len(values) + place, return_index=True, return_inverse=True
        )
    return rows[first], code
