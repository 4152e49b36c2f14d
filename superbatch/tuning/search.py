"""Which settings are tried, in which order, and which is better.

Knows nothing of how a setting is tried, so that it is tested without loading anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from superbatch.tuning.trial import Choice, Trial

# A setting is better where it stalls by so much less, or stalls no more and gives so much more that is fresh.
# Short trials of the same setting differ by 2 to 3 % on a busy machine.
LESS_STALL = 0.02
MORE_FRESH = 1.03

Try = Callable[[Choice, str], Trial]


def better(one: Trial, other: Trial, stalls: bool = True) -> bool:
    """Whether ``one`` is better than ``other``: fewer stalls first, then more fresh samples.

    ``stalls=False`` asks for fresh samples alone: where nothing is trained, the loop always waits.
    """
    if not one.tried or not other.tried:
        return one.tried
    if stalls and abs(one.stall_fraction - other.stall_fraction) > LESS_STALL:
        return one.stall_fraction < other.stall_fraction
    return one.fresh_per_second > other.fresh_per_second * MORE_FRESH


def search(
    start: Choice,
    attempt: Try,
    cores: int,
    on: Callable[[], bool] = lambda: True,
    fixed: Collection[str] = (),
    stalls: bool = True,
) -> Iterator[tuple[Trial, Trial]]:
    """Try the start, then one setting after the other, and keep what is better.

    Parameters
    ----------
    start : Choice
    attempt : callable
        Tries a choice.
    cores : int
        That loaders and their threads may use.
    on : callable
        Whether there is time for another trial.
    fixed : collection of str
        Settings that are left as they are.
    stalls : bool
        As in :func:`better`.

    Yields
    ------
    (Trial, Trial)
        Each, as it is done, and the best so far.
    """
    top = attempt(start, "as given")
    yield top, top
    seen = [start]
    for name, changes in _ladders(cores).items():
        if name == "replays" and top.stall_fraction <= LESS_STALL:
            continue  # more of them are good for nothing but stalls
        # Up while it gets better, else down; or, where it is no ladder, each in turn.
        for direction in changes:
            improved = False
            for change in direction:
                choice = change(top.choice)
                if choice in seen or any(
                    getattr(choice, n) != getattr(top.choice, n) for n in fixed
                ):
                    continue
                if not on():
                    return
                seen.append(choice)
                trial = attempt(choice, _spell(name, top.choice, choice))
                gained = better(trial, top, stalls)
                top = trial if gained else top
                yield trial, top
                if not gained:
                    break
                improved = True
            if improved:
                break


Change = Callable[[Choice], Choice]


def _ladders(cores: int) -> dict[str, list[list[Change]]]:
    """By setting: the directions that it is changed in, each a series of steps.

    Replays come first, since nothing else does as much against stalls; then what decides how often a
    chunk that is decoded is used.
    """
    return {
        "replays": [[_to(replays=(1, 4)), _to(replays=(1, 16))]],
        "chunks_per_sequence": [[_longer, _longer], [_shorter, _shorter]],
        "samples": [[_scaled("samples", 2), _scaled("samples", 2)], [_scaled("samples", 0.5)]],
        "sequences": [[_scaled("sequences", 2)], [_scaled("sequences", 0.5)]],
        "turnover": [[_to(turnover=0.5), _to(turnover=0.25)]],
        "loaders": [
            [_to(loaders=n, threads=max(1, cores // n))] for n in sorted({2, cores}) if n > 1
        ],
        "threads": [[lambda choice: replace(choice, threads=choice.threads * 2)]],
    }


def _to(**values: Any) -> Change:
    return lambda choice: replace(choice, **values)


def _scaled(name: str, factor: float) -> Change:
    return lambda choice: replace(choice, **{name: max(1, int(getattr(choice, name) * factor))})


def _longer(choice: Choice) -> Choice:
    return _resized(choice, 2.0)


def _shorter(choice: Choice) -> Choice:
    return _resized(choice, 0.5)


def _resized(choice: Choice, factor: float) -> Choice:
    """Sequences of another length, as many chunks in all."""
    given = choice.chunks_per_sequence
    if not isinstance(given, int):
        return choice  # along several dimensions, whoever wrote it knows better
    length = max(1, int(given * factor))
    return replace(
        choice,
        chunks_per_sequence=length,
        sequences=max(1, choice.sequences * given // length),
    )


def _spell(name: str, before: Choice, after: Choice) -> str:
    """What changed, such as ``samples 4096 → 8192``."""
    names = [name, *(n for n in vars(before) if n != name)]
    return ", ".join(
        f"{n} {getattr(before, n)} → {getattr(after, n)}"
        for n in names
        if getattr(before, n) != getattr(after, n)
    )
