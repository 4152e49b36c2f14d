"""What is counted while training, and how it is shown."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from superbatch.source import Filled

# Events of the time line that are kept; older ones are dropped.
_EVENTS = 20_000
_LOADS = 500
# Chunks that could not be read are named up to this many.
_NAMED = 100


@dataclass
class Stats:
    """Counts of one dataset, since it was made.

    Attributes
    ----------
    iterations : int
        Batches given out.
    fresh, replayed : int
        Samples given out for the first time, and again.
    superbatches, passes : int
        Superbatches served, and passes over them.
    elapsed_seconds : float
        Time inside of iterations; of one that goes on, until now.
    stall_seconds : float
        Time that the loop waited because no superbatch was there, the first one included.
    first_batch_seconds : float
        From the first ``iter()`` to the first batch.
    serve_seconds : float
        Time that the loop spent on batches: its own work and cutting batches out of the slot.
    load_seconds, plan_seconds, graph_seconds, cut_seconds : float
        Sums over superbatches: the whole of making one, its plan, building and submitting its graph, cutting.
    last_graph_seconds : float
        Of the latest superbatch.
    decoded_bytes : int
        Bytes that loaders had to decompress.
    loaded_blocks, sequences : int
        Blocks that were read, and sequences that samples were cut from.
    rejected, retried : int
        Samples turned down by ``reject``, and samples drawn again.
    unread : int
        Samples left out because a chunk could not be read.
    read_retries : int
        Reads that failed and were tried again.
    bad_chunks : list of str
        What could not be read and why, the first 100.
    read_seconds : float
        Sum over threads: reading and decompressing.
    fetch_seconds : float
        Of ``read_seconds``: waiting for bytes; 0 where that is not known apart from decoding.
    idle_seconds : float
        Sum over loaders: waiting for a free slot.
    restarts : int
        Loaders that were replaced.
    threads : int
        Of all loaders together.
    source : dict of str to float
        What the source counts beside this, such as gaps in a stream; summed over superbatches.
    timeline : list of (kind, begin, end)
        What happened when, in seconds since the first ``iter()``; ``kind`` is ``"load"``, ``"serve"``
        or ``"stall"``.
    loads : list of Filled
        What loaders said about the latest superbatches.
    began : float
        ``time.monotonic()`` of the first ``iter()``.
    dashboard : str
        The address of Dask's dashboard, where the given cluster has one.
    """

    iterations: int = 0
    fresh: int = 0
    replayed: int = 0
    superbatches: int = 0
    passes: int = 0
    elapsed_seconds: float = 0.0
    stall_seconds: float = 0.0
    first_batch_seconds: float = 0.0
    serve_seconds: float = 0.0
    load_seconds: float = 0.0
    plan_seconds: float = 0.0
    graph_seconds: float = 0.0
    cut_seconds: float = 0.0
    last_graph_seconds: float = 0.0
    decoded_bytes: int = 0
    loaded_blocks: int = 0
    sequences: int = 0
    rejected: int = 0
    retried: int = 0
    unread: int = 0
    read_retries: int = 0
    read_seconds: float = 0.0
    fetch_seconds: float = 0.0
    idle_seconds: float = 0.0
    restarts: int = 0
    threads: int = 1
    bad_chunks: list[str] = field(default_factory=list, repr=False)
    source: dict[str, float] = field(default_factory=dict)
    timeline: list[tuple[str, float, float]] = field(default_factory=list, repr=False)
    loads: list[Filled] = field(default_factory=list, repr=False)
    began: float = field(default=0.0, repr=False)
    dashboard: str = field(default="", repr=False)

    @property
    def stall_fraction(self) -> float:
        """Share of the elapsed time that the loop waited, the first superbatch left out."""
        elapsed = self.elapsed_seconds - self.first_batch_seconds
        stalled = self.stall_seconds - self.first_batch_seconds
        return max(0.0, stalled) / elapsed if elapsed > 0 else 0.0

    @property
    def fresh_per_second(self) -> float:
        """Fresh samples a second of elapsed time."""
        return self.fresh / self.elapsed_seconds if self.elapsed_seconds > 0 else 0.0

    @property
    def iterations_per_second(self) -> float:
        """Batches a second of elapsed time."""
        return self.iterations / self.elapsed_seconds if self.elapsed_seconds > 0 else 0.0

    @property
    def staleness(self) -> float:
        """How old the samples of a stream were when their superbatch began to be served: seconds, on average."""
        samples = self.source.get("samples", 0.0)
        return self.source.get("age_seconds", 0.0) / samples if samples else 0.0

    @property
    def replay_ratio(self) -> float:
        """Replayed samples for each fresh one."""
        return self.replayed / self.fresh if self.fresh else 0.0

    def as_dict(self) -> dict[str, float]:
        """All numbers, for TensorBoard, W&B or ``self.log``; the time line is left out."""
        numbers: dict[str, Any] = asdict(replace(self, loads=[], timeline=[], bad_chunks=[]))
        for name in ("timeline", "bad_chunks", "loads", "began", "dashboard"):
            numbers.pop(name)
        numbers |= {f"source_{name}": value for name, value in numbers.pop("source").items()}
        for name in (
            "stall_fraction",
            "fresh_per_second",
            "iterations_per_second",
            "replay_ratio",
            "staleness",
        ):
            numbers[name] = getattr(self, name)
        return numbers

    def explain(self) -> str:
        """One sentence: whether the loop waits, for which stage of loading, and what would help."""
        from superbatch.bottleneck import explain

        return explain(self)

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the time line as a Chrome trace, a JSON that ``chrome://tracing`` and Perfetto open."""
        from superbatch.timeline import write_trace

        write_trace(self, path)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the time line as a PNG."""
        from superbatch.timeline import plot

        plot(self, path)


class Meter:
    """Keeps the counts of a dataset up to date.

    Parameters
    ----------
    threads : int
        Of all loaders together.
    """

    def __init__(self, threads: int = 1) -> None:
        self._stats = Stats(threads=threads)
        self._loads: deque[Filled] = deque(maxlen=_LOADS)
        self._events: deque[tuple[str, float, float]] = deque(maxlen=_EVENTS)
        self._zero: float | None = None
        self._entered: float | None = None  # while an iteration goes on

    def enter(self) -> None:
        """An iteration begins."""
        self._entered = time.monotonic()
        if self._zero is None:
            self._zero = self._entered

    def leave(self) -> None:
        """An iteration ends."""
        self._reach_now()
        self._entered = None

    def _reach_now(self) -> None:
        """Count the time until now, where an iteration goes on."""
        if self._entered is not None:
            now = time.monotonic()
            self._stats.elapsed_seconds += now - self._entered
            self._entered = now

    def stalled(self, begin: float, end: float) -> None:
        """The loop waited for a superbatch."""
        self._stats.stall_seconds += end - begin
        self._event("stall", begin, end)
        if self._stats.iterations == 0:
            self._stats.first_batch_seconds += end - begin

    def filled(self, filled: Filled) -> None:
        """A loader handed over a superbatch."""
        stats = self._stats
        stats.load_seconds += filled.load_seconds
        stats.plan_seconds += filled.plan_seconds
        stats.graph_seconds += filled.graph_seconds
        stats.cut_seconds += filled.cut_seconds
        stats.last_graph_seconds = filled.graph_seconds
        stats.decoded_bytes += filled.decoded_bytes
        stats.loaded_blocks += filled.loaded
        stats.sequences += filled.sequences
        stats.rejected += filled.rejected
        stats.retried += filled.retried
        stats.unread += filled.unread
        stats.read_retries += filled.read_retries
        stats.read_seconds += filled.read_seconds
        stats.fetch_seconds += filled.fetch_seconds
        stats.idle_seconds += filled.idle_seconds
        stats.dashboard = filled.dashboard or stats.dashboard
        self._loads.append(filled)
        stats.bad_chunks += [b for b in filled.bad if b not in stats.bad_chunks]
        del stats.bad_chunks[_NAMED:]
        extra = dict(filled.extra)
        if "age_seconds" in extra:  # samples have grown older in their slot
            extra["age_seconds"] += filled.samples * max(0.0, time.monotonic() - filled.ended)
        for name, value in extra.items():
            stats.source[name] = stats.source.get(name, 0.0) + value
        self._event("load", filled.began, filled.ended)

    def batch(self, samples: int, fresh: bool) -> None:
        """A batch is given out."""
        stats = self._stats
        stats.iterations += 1
        if fresh:
            stats.fresh += samples
        else:
            stats.replayed += samples

    def passed(self, first: bool, begin: float, end: float) -> None:
        """A pass over a superbatch is done."""
        self._stats.passes += 1
        self._stats.superbatches += first
        self._stats.serve_seconds += end - begin
        self._event("serve", begin, end)

    def restarted(self, count: int) -> None:
        """Loaders were replaced, so many in all."""
        self._stats.restarts = count

    def snapshot(self, *, history: bool = True) -> Stats:
        """The counts as they are now; they do not change any more.

        ``history=False`` leaves out the time line, whose copy takes longer than a batch.
        """
        self._reach_now()
        if not history:
            return replace(self._stats, timeline=[], bad_chunks=[], source={}, loads=[])
        return replace(
            self._stats,
            timeline=list(self._events),
            bad_chunks=list(self._stats.bad_chunks),
            source=dict(self._stats.source),
            loads=list(self._loads),
            began=self._zero or 0.0,
        )

    def _event(self, kind: str, begin: float, end: float) -> None:
        zero = self._zero or 0.0
        # A loader may begin before the loop asks for its first batch.
        self._events.append((kind, begin - zero, end - zero))
