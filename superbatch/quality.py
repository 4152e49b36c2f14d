"""How close the order of samples is to a true shuffle, computed on the plan: no data is read.

A true shuffle draws each sample from all valid windows of the archive, whatever was drawn before. A
superbatch draws from the few chunk sequences that are in memory. What that costs is measured by where
the samples of a batch come from.

Entropy of origin
    Of the samples of a batch, how evenly they spread over chunk sequences, in bits: the plug-in
    entropy of their counts, with the correction of Miller for small samples, ``(k - 1) / 2n`` nats for
    ``k`` sequences among ``n`` samples (Miller 1955, "Note on the bias of information estimates"; Paninski
    2003, "Estimation of entropy and mutual information"). Next to it stands what the same estimate gives for
    a true shuffle, on average, so that what is left of the bias is in both. As a measure of how well
    block sampling mixes: D'Ascenzo and Cultrera di Montesano 2025, "scDataset".
Effective batch size
    Samples of one sequence are alike. A batch of ``n`` samples is worth ``n / (1 + (m - 1) * icc)``
    independent ones for the mean of anything whose correlation within a sequence is ``icc``: the
    design effect of cluster sampling (Kish 1965, "Survey sampling"). ``m`` is the mean size of a cluster as
    its members see it, the sum of the squared counts divided by ``n``, which is right for clusters of
    unequal size.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.joint import JointAxis
from superbatch.archive.plan import Plan, distinct
from superbatch.archive.sequences import Axis
from superbatch.errors import ArgumentError, shown

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Sequences of about the same probability are taken together, in no more groups than this.
_GROUPS = 512
_MANY = 10**9


@dataclass(frozen=True, eq=False)
class Quality:
    """How well some superbatches are shuffled, and what they show of the archive.

    Each figure of what is served stands next to ``shuffled_...``, which is what a true shuffle over all
    valid windows gives on average, for batches of the same sizes.

    Attributes
    ----------
    superbatches, batches, samples, batch_size : int
        What was looked at: the first pass over so many superbatches of one epoch, on this rank; the small ones
        at its beginning are left out where there are enough others.
    windows, sequences : int
        Valid windows in the archive, and chunk sequences that hold them.
    entropy, shuffled_entropy : float
        Of the sequences that the samples of a batch come from, in bits.
    batch_sequences, shuffled_batch_sequences : float
        Distinct sequences in a batch.
    superbatch_sequences, shuffled_superbatch_sequences : float
        Distinct sequences in a full superbatch.
    unseen, seen_once, seen_more : float
        Shares of all windows that are served fresh not at all, once, and twice or more.
    loaded_unseen, loaded_once, loaded_more : float
        The same of the windows in the sequences that are loaded.
    fresh, replayed : int
        Samples that are served for the first time, and served again.
    correlation : float or None
        The correlation within a sequence, as given.
    effective_batch, shuffled_effective_batch : float or None
        Independent samples that a batch is worth, with that correlation.
    entropies, origins : array, shape (batches,)
        Entropy, and number of sequences, of each batch in the order of serving.

    Examples
    --------
    >>> from superbatch.archive.chunks import Chunks
    >>> axis = Axis("time", Chunks.regular(1000, 10), width=3, per_sequence=1)
    >>> settings = dict(samples=64, batch_size=16)
    >>> few = of_plan(Plan([axis], sequences=2, **settings))
    >>> all_of_them = of_plan(Plan([axis], sequences=1000, **settings))
    >>> few.score < 0.3, all_of_them.score > 0.95
    (True, True)
    """

    superbatches: int
    batches: int
    samples: int
    batch_size: int
    windows: int
    sequences: int
    entropy: float
    shuffled_entropy: float
    batch_sequences: float
    shuffled_batch_sequences: float
    superbatch_sequences: float
    shuffled_superbatch_sequences: float
    unseen: float
    seen_once: float
    seen_more: float
    loaded_unseen: float
    loaded_once: float
    loaded_more: float
    fresh: int
    replayed: int
    correlation: float | None
    effective_batch: float | None
    shuffled_effective_batch: float | None
    entropies: Floats
    origins: Ints

    @property
    def score(self) -> float:
        """Entropy of a batch relative to that of a true shuffle: 1 is as good, 0 is one sequence."""
        return _ratio(self.entropy, self.shuffled_entropy)

    def as_dict(self) -> dict[str, int | float | None]:
        """All figures but those of each batch, by name."""
        names = [f.name for f in fields(self) if f.name not in ("entropies", "origins")]
        return {"score": self.score, **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        compared = [
            ("entropy of origin in a batch, bits", self.entropy, self.shuffled_entropy),
            ("sequences in a batch", self.batch_sequences, self.shuffled_batch_sequences),
            (
                "sequences in a superbatch",
                self.superbatch_sequences,
                self.shuffled_superbatch_sequences,
            ),
        ]
        if self.effective_batch is not None and self.shuffled_effective_batch is not None:
            name = f"effective batch size (correlation {self.correlation:.2f})"
            compared.append((name, self.effective_batch, self.shuffled_effective_batch))
        lines = [
            f"{self.batches:,} batches of {self.batch_size} out of {self.superbatches} superbatches; "
            f"{self.windows:,} windows in {self.sequences:,} sequences",
            f"{'':44}{'served':>10}{'true shuffle':>14}{'ratio':>8}",
        ]
        for name, served, shuffled in compared:
            lines.append(
                f"{name:44}{served:>10.2f}{shuffled:>14.2f}{_ratio(served, shuffled):>8.2f}"
            )
        lines += [
            f"{'':44}{'not at all':>10}{'once':>14}{'more':>8}",
            f"{'windows seen':44}{percent(self.unseen):>10}{percent(self.seen_once):>14}"
            f"{percent(self.seen_more):>8}",
            f"{'of those in loaded sequences':44}{percent(self.loaded_unseen):>10}"
            f"{percent(self.loaded_once):>14}{percent(self.loaded_more):>8}",
            f"{'samples':44}{self.fresh:>10,} fresh{self.replayed:>14,} replayed",
        ]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> None:
        """Draw the figures into a file.

        Parameters
        ----------
        path : str or Path
            Where the picture goes, such as ``"quality.png"``.

        Raises
        ------
        ImportError
            Matplotlib is not installed.
        """
        from superbatch.quality_plot import draw

        draw(self, path)


def measure(
    feed_or_plan: Any,
    *,
    batches: int | None = None,
    epoch: int = 0,
    replays: float = 1.0,
    correlation: float | None = None,
) -> Quality:
    """The quality of the first superbatches that hold so many batches.

    Parameters
    ----------
    feed_or_plan : Plan, or what ``ArchiveSource.bind`` returns
    batches : int, optional
        Superbatches are looked at until they hold so many; four of them by default.
    epoch, replays, correlation
        As in :func:`of_plan`.

    Returns
    -------
    Quality
    """
    plan = feed_or_plan if isinstance(feed_or_plan, Plan) else getattr(feed_or_plan, "plan", None)
    if not isinstance(plan, Plan):
        raise TypeError(
            f"{type(feed_or_plan).__name__} has no plan to measure: use a source of archives"
        )
    superbatches = 4
    if batches is not None:
        _check("batches", batches, numbers.Integral, 1, math.inf, "an int, 1 or more")
        last = plan.epoch_superbatches
        superbatches, planned = 0, 0
        while planned < batches and (last is None or superbatches < last):
            # once there are no full ones left, the small ones at the beginning are looked at too
            index = _first(plan, superbatches + 1)
            planned = sum(plan.batches(index + n) for n in range(superbatches + 1))
            superbatches += 1
    return of_plan(
        plan, superbatches=superbatches, epoch=epoch, replays=replays, correlation=correlation
    )


def of_plan(
    plan: Plan,
    *,
    superbatches: int = 4,
    epoch: int = 0,
    replays: float = 1.0,
    correlation: float | None = None,
) -> Quality:
    """The quality of the first full superbatches of an epoch.

    Those at the beginning, which are smaller, are left out where there are enough others: they are drawn from
    fewer sequences, and are soon over.

    Parameters
    ----------
    plan : Plan
    superbatches : int
        How many to look at; no more than the epoch has.
    epoch : int
    replays : float
        Passes over each superbatch, on average.
    correlation : float, optional
        Within a chunk sequence, from 0 to 1: how much of the variance of what is learnt from a
        sample is shared by all samples of its sequence.

    Returns
    -------
    Quality

    Raises
    ------
    ArgumentError
        A number that cannot be.
    """
    _check("superbatches", superbatches, numbers.Integral, 1, math.inf, "an int, 1 or more")
    _check("replays", replays, numbers.Real, 1, math.inf, "the passes over a superbatch, 1 or more")
    if correlation is not None:
        _check("correlation", correlation, numbers.Real, 0, 1, "a number from 0 to 1")
    if plan.epoch_superbatches is not None:
        superbatches = min(superbatches, plan.epoch_superbatches)
    first = _first(plan, superbatches)
    planned = [plan.superbatch(epoch, first + number) for number in range(superbatches)]

    per_batch = []
    for index, found in enumerate(planned, start=first):
        sizes = np.array(plan.batch_sizes(index))
        per_batch.append(_batches(found.sequence_of, sizes))
    sizes, plug_in, origins, clusters = (
        np.concatenate(column) for column in zip(*per_batch, strict=True)
    )
    entropies = _corrected(plug_in, origins, sizes)

    starts = np.concatenate([found.starts for found in planned])
    times = np.bincount(distinct(starts)[1])
    once, more = int((times == 1).sum()), int((times > 1).sum())
    loaded = _windows_in(plan.axes, distinct(np.concatenate([p.sequences for p in planned]))[0])

    shuffle = _Shuffle(plan)
    full = max(len(found.starts) for found in planned)
    in_full = [len(found.sequences) for found in planned if len(found.starts) == full]
    effective, effective_shuffled = None, None
    if correlation is not None:
        effective = float(np.mean(sizes / (1 + (clusters - 1) * correlation)))
        effective_shuffled = shuffle.mean(
            lambda n: n / (1 + (shuffle.cluster(n) - 1) * correlation), sizes
        )
    return Quality(
        superbatches=superbatches,
        batches=len(sizes),
        samples=len(starts),
        batch_size=plan.batch_size,
        windows=plan.total,
        sequences=math.prod(axis.groups().items for axis in plan.axes),
        entropy=float(entropies.mean()),
        shuffled_entropy=shuffle.mean(shuffle.entropy, sizes),
        batch_sequences=float(origins.mean()),
        shuffled_batch_sequences=shuffle.mean(shuffle.sequences, sizes),
        superbatch_sequences=float(np.mean(in_full)),
        shuffled_superbatch_sequences=shuffle.sequences(full),
        unseen=1 - (once + more) / plan.total,
        seen_once=once / plan.total,
        seen_more=more / plan.total,
        loaded_unseen=1 - (once + more) / loaded,
        loaded_once=once / loaded,
        loaded_more=more / loaded,
        fresh=len(starts),
        replayed=round(len(starts) * (replays - 1)),
        correlation=correlation,
        effective_batch=effective,
        shuffled_effective_batch=effective_shuffled,
        entropies=entropies,
        origins=origins,
    )


def _first(plan: Plan, superbatches: int) -> int:
    """Where to begin to look at so many superbatches."""
    if plan.epoch_superbatches is None:
        return plan.small
    return max(0, min(plan.small, plan.epoch_superbatches - superbatches))


def _batches(sequence_of: Ints, sizes: Ints) -> tuple[Ints, Floats, Ints, Floats]:
    """Of each batch: size, plug-in entropy in bits, distinct sequences, and the mean cluster of a sample."""
    batch = np.repeat(np.arange(len(sizes)), sizes)
    width = int(sequence_of.max()) + 1
    pairs, counts = np.unique(batch * width + sequence_of, return_counts=True)
    of = pairs // width
    logs = np.bincount(of, counts * np.log2(counts), len(sizes))
    squares = np.bincount(of, counts.astype(np.float64) ** 2, len(sizes))
    return (
        sizes,
        np.log2(sizes) - logs / sizes,
        np.bincount(of, minlength=len(sizes)),
        squares / sizes,
    )


def _corrected(plug_in: Any, origins: Any, sizes: Any) -> Any:
    """Entropy in bits with Miller's correction."""
    return plug_in + (origins - 1) / (2 * sizes * math.log(2))


def _windows_in(axes: Sequence[Axis | JointAxis], sequences: Ints) -> int:
    """Valid windows that some sequences hold together."""
    held = np.ones(len(sequences), dtype=np.int64)
    for i, axis in enumerate(axes):
        low, high = axis.bounds(sequences[:, i])
        held *= high - low
    return int(held.sum())


class _Shuffle:
    """What a true shuffle gives on average: sums over all sequences, of what one contributes."""

    def __init__(self, plan: Plan) -> None:
        # Without replacement where every window comes once; of very many, that makes no difference.
        finite = plan.coverage == "once" and plan.total < _MANY
        self._population = plan.total if finite else math.inf
        share, number = np.ones(1), np.ones(1)
        for axis in plan.axes:
            own, items = _shares(axis)
            share = np.multiply.outer(share, own).reshape(-1)
            number = np.multiply.outer(number, items).reshape(-1)
            share, number = _condensed(share, number)
        self._share, self._number = share, number

    def mean(self, function: Callable[[int], float], sizes: Ints) -> float:
        """The mean over batches of these sizes."""
        distinct_sizes, counts = np.unique(sizes, return_counts=True)
        values = [function(int(n)) for n in distinct_sizes]
        return float(np.average(values, weights=counts))

    def sequences(self, n: int) -> float:
        """Distinct sequences among ``n`` samples."""
        if math.isinf(self._population):
            with np.errstate(divide="ignore"):
                absent = np.exp(n * np.log1p(-self._share))
        else:
            held, total = self._share * self._population, int(self._population)
            logs = [_log_absent(k, n, total) for k in held.tolist()]
            absent = np.exp(logs)
        return float(self._number @ (1 - absent))

    def entropy(self, n: int) -> float:
        """Corrected entropy of ``n`` samples, in bits."""
        chances = self._chances(n)
        k = np.arange(1, n + 1) / n
        plug_in = float(self._number @ (chances[:, 1:] @ (-k * np.log2(k))))
        return float(_corrected(plug_in, self.sequences(n), n))

    def cluster(self, n: int) -> float:
        """Samples of its own sequence that a sample finds in a batch of ``n``, itself included."""
        alike = float(self._number @ self._share**2)
        if math.isfinite(self._population) and self._population > 1:
            # Another sample is never the same window.
            alike = (alike * self._population - 1) / (self._population - 1)
        return 1 + (n - 1) * alike

    def _chances(self, n: int) -> Floats:
        """Of each group, the chances that a sequence has 0, 1, ... of ``n`` samples.

        Binomial, or hypergeometric in a finite population; from the ratios of neighbouring terms.
        """
        k = np.arange(n)
        share = self._share[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            if math.isinf(self._population):
                ratio = (n - k) / (k + 1) * (share / (1 - share))
                least = np.where(share >= 1, n, 0)
            else:
                held = share * self._population
                rest = self._population - held
                ratio = np.maximum(held - k, 0) * (n - k) / ((k + 1) * (rest - n + k + 1))
                least = np.maximum(0, np.ceil(n - rest - 1e-9)).astype(np.int64)
            # Terms below the least number that there has to be are nothing.
            steps = np.where(k < least, 0.0, np.log(ratio))
        logs = np.concatenate([np.zeros((len(share), 1)), np.cumsum(steps, axis=1)], axis=1)
        logs = np.where(np.arange(n + 1) < least, -np.inf, logs)
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return np.asarray(chances, dtype=np.float64)


def _log_absent(held: float, n: int, total: int) -> float:
    """Log of the chance that none of ``n`` out of ``total`` windows is one of ``held``."""
    if total - held - n < -1e-9:
        return -math.inf
    gamma = math.lgamma
    apart = gamma(total - held + 1) - gamma(max(0.0, total - held - n) + 1)
    return apart + gamma(total - n + 1) - gamma(total + 1)


def _shares(axis: Axis | JointAxis) -> tuple[Floats, Floats]:
    """Of the items along an axis: the share of all windows, by weight, and how many have it."""
    if isinstance(axis, JointAxis):
        return _condensed(*axis.shares())
    if axis.weights is None:
        groups = axis.groups()
        return groups.each / axis.total, groups.number.astype(np.float64)
    items = np.arange(2 * axis.blocks, dtype=np.int64)
    low, high = axis.bounds(items)
    own = high > low
    sums = np.concatenate([[0.0], np.cumsum(axis.weights)])
    share = (sums[high[own]] - sums[low[own]]) / sums[-1]
    return _condensed(share, np.ones(len(share)))


def _condensed(share: Floats, number: Floats) -> tuple[Floats, Floats]:
    """The same with no more than ``_GROUPS`` groups: those of about the same share are taken together."""
    order = np.argsort(share)
    share, number = share[order], number[order]
    values, group = np.unique(share, return_inverse=True)
    if len(values) > _GROUPS:
        group = np.minimum(np.arange(len(share)) * _GROUPS // len(share), _GROUPS - 1)
    members = np.bincount(group, number).astype(np.float64)
    return np.bincount(group, number * share) / members, members


def _check(name: str, value: Any, kind: type, least: float, most: float, what: str) -> None:
    right = isinstance(value, kind) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        raise ArgumentError(f"{name}={shown(value)} cannot be measured with: write {what}")


def _ratio(served: float, shuffled: float) -> float:
    """Where a true shuffle has nothing to offer, all is as good."""
    return served / shuffled if shuffled > 0 else 1.0


def percent(share: float) -> str:
    """A share that is not zero never looks like it."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"
