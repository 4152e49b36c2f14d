"""Which stage of loading the training loop waits for, in a sentence."""

from __future__ import annotations

from superbatch.stats import Stats

# A loop that waits less is fed well enough.
_SMALL = 0.01

_ADVICE = {
    "reading": "bring the store nearer, or give more threads= or loaders=",
    "decoding": "draw more samples= from as many sequences, allow more replays, or store it in a faster codec",
    "reading and decoding": "draw more samples= from as many sequences, or allow more replays",
    "cutting samples": "make transform and reject cheaper, or give more loaders=",
    "planning, scheduling and waiting for a core": "make superbatches larger, or of fewer and longer sequences",
}
_STREAM_ADVICE = {
    "waiting for producers": "start more of them, or allow more replays (a higher ratio= of a Reservoir)",
    "fetching batches": "bring the server nearer (a unix socket is the fastest), or put fewer bytes",
    "drawing samples and waiting for a core": "make superbatches larger",
}


def shares(stats: Stats) -> dict[str, float]:
    """What loaders spent their time on, as shares of all their threads' time while they loaded.

    Parameters
    ----------
    stats : Stats

    Returns
    -------
    dict of str to float
        By stage. What is left to 1 is planning, Dask, and waiting for a core.
    """
    if "wait_seconds" in stats.source:
        return _of_stream(stats)
    # Of several loaders, each has its part of the threads.
    loaders = len({load.loader for load in stats.loads}) or 1
    available = stats.load_seconds * stats.threads / loaders
    if available <= 0:
        return {}
    if stats.fetch_seconds > 0:
        found = {
            "reading": stats.fetch_seconds,
            "decoding": stats.read_seconds - stats.fetch_seconds,
        }
    else:
        found = {"reading and decoding": stats.read_seconds}
    found["cutting samples"] = stats.cut_seconds
    found = {name: min(1.0, max(0.0, seconds) / available) for name, seconds in found.items()}
    found["planning, scheduling and waiting for a core"] = max(0.0, 1.0 - sum(found.values()))
    return found


def _of_stream(stats: Stats) -> dict[str, float]:
    if stats.load_seconds <= 0:
        return {}
    wait, fetch, rest = _STREAM_ADVICE
    found = {
        wait: min(1.0, stats.source["wait_seconds"] / stats.load_seconds),
        fetch: min(1.0, stats.source["fetch_seconds"] / stats.load_seconds),
    }
    return {**found, rest: max(0.0, 1.0 - sum(found.values()))}


def explain(stats: Stats) -> str:
    """Whether the loop waits, and for what.

    Parameters
    ----------
    stats : Stats

    Returns
    -------
    str
        One sentence, with the figures that it rests on.

    Examples
    --------
    >>> explain(Stats())
    'nothing was loaded yet'
    """
    stages = shares(stats)
    if not stages:
        return "nothing was loaded yet"
    stalled = stats.stall_fraction
    if stalled <= _SMALL:
        loaders = len({load.loader for load in stats.loads}) or 1
        idle = (
            stats.idle_seconds / (stats.elapsed_seconds * loaders) if stats.elapsed_seconds else 0.0
        )
        return (
            f"the training loop sets the pace: it waited {stalled:.1%} of the time for superbatches, "
            f"and loaders waited {min(1.0, idle):.0%} of the time for a free slot"
        )
    stage = max(stages, key=stages.__getitem__)
    return (
        f"the training loop waited {stalled:.0%} of the time for superbatches, and {stage} took "
        f"{stages[stage]:.0%} of the loaders' time: {(_ADVICE | _STREAM_ADVICE)[stage]}"
    )
