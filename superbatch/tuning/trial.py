"""One setting, tried: a few seconds of training with it, and what was counted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from superbatch.archive.source import ArchiveSource
from superbatch.dataset import SuperbatchDataset
from superbatch.errors import SuperbatchError
from superbatch.quality import of_plan
from superbatch.stats import Stats

TrainStep = Callable[[Any], Any]

# A trial goes on for up to so many times its seconds where superbatches take that long.
_PATIENCE = 3


@dataclass(frozen=True)
class Choice:
    """The settings that are searched.

    Attributes
    ----------
    samples, sequences, chunks_per_sequence, turnover
        As ``ArchiveSource`` takes them.
    loaders, threads, replays
        As ``SuperbatchDataset`` takes them.
    """

    samples: int
    sequences: int
    chunks_per_sequence: Any
    turnover: float
    loaders: int
    threads: int
    replays: Any

    def source(self, source: ArchiveSource) -> ArchiveSource:
        """The same windows, drawn with these settings."""
        return source.replace(
            samples=self.samples,
            sequences=self.sequences,
            chunks_per_sequence=self.chunks_per_sequence,
            turnover=self.turnover,
            memory=None,  # what does not fit is not tried
        )


@dataclass(frozen=True)
class Trial:
    """What a setting gave.

    Attributes
    ----------
    choice : Choice
    changed : str
        What was changed, against the best setting so far.
    iterations_per_second, fresh_per_second : float
        Batches, and samples given out for the first time, a second.
    stall_fraction : float
        Share of the time that the loop waited for a superbatch.
    replay_ratio : float
        Replayed samples for each fresh one.
    memory_bytes : int
        Predicted: slots, sequences and loader processes.
    score : float
        Of :class:`~superbatch.quality.Quality`: 1 is a true shuffle.
    note : str
        Why it was not tried, or what it failed with; empty where it went well.
    """

    choice: Choice
    changed: str
    iterations_per_second: float = 0.0
    fresh_per_second: float = 0.0
    stall_fraction: float = 0.0
    replay_ratio: float = 0.0
    memory_bytes: int = 0
    score: float = 0.0
    note: str = ""

    @property
    def tried(self) -> bool:
        """Whether it was measured."""
        return not self.note

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self)


class Trials:
    """Tries settings of one source with one training step.

    Parameters
    ----------
    source : ArchiveSource
    train_step : callable
        ``train_step(batch)``.
    batch_size : int
    seconds : float
        Of one trial.
    memory : int
        Bytes that a setting may take.
    options : dict
        Further arguments of ``SuperbatchDataset``.
    """

    def __init__(
        self,
        source: ArchiveSource,
        train_step: TrainStep,
        batch_size: int,
        seconds: float,
        memory: int,
        options: dict[str, Any],
    ) -> None:
        self.source, self.train_step, self.batch_size = source, train_step, batch_size
        self.seconds, self.memory, self.options = seconds, memory, options
        self.least_score = 0.0

    def __call__(self, choice: Choice, changed: str) -> Trial:
        """Try a setting; one that cannot work, or does not fit, comes back with a note."""
        try:
            source = choice.source(self.source)
            known = source.describe(choice.loaders, choice.threads)["memory_bytes"]["total"]
            if known > self.memory:
                return Trial(choice, changed, memory_bytes=known, note="does not fit")
            with self.dataset(source, choice) as dataset:
                score = of_plan(dataset._feed.plan).score  # type: ignore[attr-defined]
                if score < self.least_score:
                    note = "shuffles worse"
                    return Trial(choice, changed, memory_bytes=known, score=score, note=note)
                numbers = self._train(dataset)
        except SuperbatchError as error:
            return Trial(choice, changed, note=str(error))
        return Trial(choice, changed, *numbers, memory_bytes=known, score=score)

    def dataset(self, source: ArchiveSource, choice: Choice) -> SuperbatchDataset:
        """A dataset with these settings."""
        return SuperbatchDataset(
            source,
            self.batch_size,
            loaders=choice.loaders,
            threads=choice.threads,
            replays=choice.replays,
            **self.options,
        )

    def _train(self, dataset: SuperbatchDataset) -> tuple[float, float, float, float]:
        """Train, and count from the end of one superbatch's first pass to the end of another's.

        Counted in between, fresh samples would be the more, the more of a first pass is at the end. The
        small superbatches of the beginning are left out, unless training gets no further in this time,
        which begins with the first batch: how long loaders take to start says nothing of a setting.
        """
        begin, small = math.inf, dataset._feed.plan.small  # type: ignore[attr-defined]
        marks: list[tuple[float, Stats]] = []
        for batch in _without_end(dataset):
            begin = min(begin, time.monotonic())
            self.train_step(batch)
            now, stats = time.monotonic(), dataset._meter.snapshot(history=False)
            if not marks or stats.superbatches > marks[-1][1].superbatches:
                marks.append((now, stats))
            full = sum(mark.superbatches > small for _, mark in marks)
            if full > 1:
                (start, before), (end, after) = marks[-full], marks[-1]
            else:
                (start, before), (end, after) = marks[min(1, len(marks) - 1)], (now, stats)
            enough = self.seconds * (1 if full > 1 else _PATIENCE)
            if now - begin > enough and after.fresh > before.fresh:
                break
        seconds = max(end - start, 1e-9)
        fresh = after.fresh - before.fresh
        return (
            (after.iterations - before.iterations) / seconds,
            fresh / seconds,
            (after.stall_seconds - before.stall_seconds) / seconds,
            (after.replayed - before.replayed) / max(1, fresh),
        )


def headspace(dataset: SuperbatchDataset, train_step: TrainStep, seconds: float = 5.0) -> float:
    """How fast training would be if loading were free: steps on one batch that is at hand.

    Parameters
    ----------
    dataset : SuperbatchDataset
        Where the batch comes from.
    train_step : callable
        ``train_step(batch)``; what it changes (a model) stays changed.
    seconds : float
        How long to measure, after two steps that warm up.

    Returns
    -------
    float
        Batches a second.

    Examples
    --------
    >>> import time, numpy as np, xarray as xr, superbatch as sb
    >>> field = xr.DataArray(np.zeros((100, 8), "f4"), dims=("time", "x"))
    >>> source = sb.ArchiveSource({"field": sb.Window(field, time=4)}, samples=64)
    >>> with sb.SuperbatchDataset(source, batch_size=8) as dataset:
    ...     rate = sb.headspace(dataset, lambda batch: time.sleep(0.01), seconds=0.5)
    >>> 10 < rate <= 100
    True
    """
    batch = next(iter(dataset))
    for _ in range(2):
        train_step(batch)
    begin, steps = time.monotonic(), 0
    while (elapsed := time.monotonic() - begin) < seconds or not steps:
        train_step(batch)
        steps += 1
    return steps / max(elapsed, 1e-9)


def _without_end(dataset: SuperbatchDataset) -> Iterator[Any]:
    while True:
        yield from dataset
