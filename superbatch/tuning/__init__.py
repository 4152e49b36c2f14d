"""Finding settings: short trials of one setting after the other, with the user's own training step."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from superbatch.archive.source import ArchiveSource
from superbatch.arguments import check_count, check_seconds, usable_cores
from superbatch.errors import ArgumentError
from superbatch.memory import available, parse_bytes
from superbatch.tuning.report import Tuning
from superbatch.tuning.search import search
from superbatch.tuning.trial import Choice, TrainStep, Trial, Trials, headspace

__all__ = ["Choice", "Trial", "Tuning", "headspace", "tune"]

# Trials that a search makes, about: its time is shared among them; but none is shorter than a second.
_TRIALS = 12
_LEAST_SECONDS = 1.0
# A setting that shuffles worse than the one given, by so much of its score, is not taken.
_WORSE = 0.9
# Of the memory that is free, the part that is taken where the user sets no limit.
_SHARE = 0.7


def tune(
    source: ArchiveSource,
    train_step: TrainStep | None = None,
    *,
    batch_size: int = 32,
    seconds: float = 60.0,
    memory: str | int | None = None,
    cores: int | None = None,
    fixed: Collection[str] = (),
    progress: bool = False,
    **options: Any,
) -> Tuning:
    """Search the settings at which training waits least, and gets the most fresh samples.

    Each setting is tried for some seconds: a dataset is made with it and trained on with
    ``train_step``. One setting after the other is changed, and what is better is kept: where training waits
    2 % of the time less, or waits no more and gets 3 % more fresh samples. Settings that do not fit
    into the memory, and those that shuffle clearly worse than the ones given, are left out.

    Parameters
    ----------
    source : ArchiveSource
        What is drawn from, and the settings to begin with.
    train_step : callable, optional
        ``train_step(batch)``, as in training; what it changes (a model) stays changed. Without,
        batches are taken as fast as they come, the most fresh samples are looked for, and replays, which
        give none, stay as they are.
    batch_size : int
    seconds : float
        About how long to search.
    memory : str or int, optional
        Bytes for slots, loaded sequences and loaders, such as ``"8GB"``. Default: 70 % of what is free.
    cores : int, optional
        That loaders and threads share. Default: those that the process may use.
    fixed : collection of str
        Settings to leave alone: ``"samples"``, ``"sequences"``, ``"chunks_per_sequence"``, ``"turnover"``,
        ``"loaders"``, ``"threads"``, ``"replays"``.
    progress : bool
        Print each trial as it is done.
    **options
        Further arguments of ``SuperbatchDataset``, such as ``device``.

    Returns
    -------
    Tuning
        Prints as a table with the reasons and the Python to paste; ``plot(path)``, ``headspace``.

    Raises
    ------
    ArgumentError
        Not even the settings as given can be tried.

    Examples
    --------
    >>> import numpy as np, xarray as xr, superbatch as sb
    >>> field = xr.DataArray(np.zeros((400, 8), "f4"), dims=("time", "x")).chunk(time=20)
    >>> source = sb.ArchiveSource({"field": sb.Window(field, time=4)}, samples=64, sequences=4)
    >>> found = sb.tune(source, lambda batch: batch["field"].mean(), batch_size=8, seconds=3)
    >>> print(found)  # doctest: +SKIP
    >>> found.best.fresh_per_second > 0
    True
    """
    if not isinstance(source, ArchiveSource):
        raise ArgumentError(
            f"source is {type(source).__name__}: settings are searched for sb.ArchiveSource, "
            "a stream is as fast as its producers"
        )
    known = list(Choice.__dataclass_fields__)
    if unknown := set(fixed) - set(known):
        raise ArgumentError(
            f"fixed={sorted(unknown)} are no settings that are searched: write some of {', '.join(known)}"
        )
    check_count("batch_size", batch_size, 1)
    check_seconds("seconds", seconds)
    if cores is not None:
        check_count("cores", cores, 1)
    cores = cores or usable_cores()
    free = source.memory or int(_SHARE * available())
    limit = free if memory is None else parse_bytes(memory)
    choice = Choice(
        samples=source.samples,
        sequences=source.sequences,
        chunks_per_sequence=source.chunks_per_sequence,
        turnover=source.turnover,
        loaders=options.pop("loaders", 1),
        threads=options.pop("threads", None) or cores,
        replays=options.pop("replays", (1, 4) if train_step else 1),
    )
    step = train_step or _nothing
    deadline = time.monotonic() + seconds
    each = max(_LEAST_SECONDS, seconds / _TRIALS)
    attempt = Trials(source, step, batch_size, each, limit, options)
    if source.coverage == "once":
        fixed = {*fixed, "turnover"}
    if train_step is None:
        fixed = {*fixed, "replays"}
    choice = _fitted(choice, source, limit)
    unhindered = None
    if train_step is not None:
        with attempt.dataset(choice.source(source), replace(choice, replays=1)) as dataset:
            unhindered = headspace(dataset, train_step, each / 2)
    trials: list[Trial] = []
    found = search(
        choice,
        attempt,
        cores,
        on=lambda: time.monotonic() < deadline,
        fixed=fixed,
        stalls=train_step is not None,
    )
    for trial, top in found:
        if not trials:
            if not trial.tried:
                raise ArgumentError(f"the settings as given cannot be tried: {trial.note}")
            attempt.least_score = _WORSE * trial.score
        trials.append(trial)
        if progress:
            print(_line(trial, trial is top), flush=True)
    return Tuning(trials, top, unhindered, batch_size, cores)


def _fitted(choice: Choice, source: ArchiveSource, limit: int) -> Choice:
    """The same; with fewer samples and sequences, where the memory has no room for those given."""
    made = choice.source(source)
    if made.describe(choice.loaders, choice.threads)["memory_bytes"]["total"] <= limit:
        return choice
    known = made.replace(memory=limit).describe(choice.loaders, choice.threads)
    return replace(choice, samples=known["samples"], sequences=known["sequences"])


def _nothing(batch: Any) -> None:
    """Training that takes no time."""


def _line(trial: Trial, top: bool) -> str:
    """One trial, while it goes on."""
    if not trial.tried:
        return f"  {trial.changed}: {trial.note}"
    return (
        f"{'*' if top else ' '} {trial.changed}: {trial.iterations_per_second:,.0f} batches/s, "
        f"{trial.fresh_per_second:,.0f} fresh samples/s, waits {trial.stall_fraction:.1%} of the time"
    )
