"""In the loader process: runs the graph of each superbatch and keeps what the next one needs."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.task_spec import TaskRef
from dask.utils import key_split
from distributed import Client, Future, as_completed

from superbatch.archive import graph as gr
from superbatch.archive.client import LOST, connect, gone
from superbatch.archive.cut import Cutter
from superbatch.archive.graph import Graph, Key
from superbatch.archive.patience import reads
from superbatch.archive.plan import Plan, SuperbatchPlan
from superbatch.archive.read_config import configure
from superbatch.errors import SuperbatchError
from superbatch.failure import Failure
from superbatch.source import Filled, Slot

Ints = npt.NDArray[np.int64]

# A sample that is rejected is drawn again this many times before its place is given up.
ATTEMPTS = 10

# A superbatch whose tasks a cluster has lost is submitted again this many times.
RECOVERIES = 3
# Seconds between attempts to reach the workers of a cluster.
_WAITS = (0.5, 1.0, 2.0)

# A loader that ends waits so long for its threads.
_CLOSE_SECONDS = 0.5

_numbers = itertools.count()


class ArchiveFiller:
    """Fills slots from an archive.

    Parameters
    ----------
    plan : Plan
    cutter : Cutter
    threads : int
        Dask threads in this process; unused where a cluster is given.
    dask_address : str, callable or None
        The cluster.
    """

    def __init__(self, plan: Plan, cutter: Cutter, threads: int, dask_address: Any = None) -> None:
        configure(threads)
        self.plan, self.cutter = plan, cutter
        self.name = f"source-{next(_numbers)}"
        gr.cutters[self.name] = cutter
        self.client: Client = connect(dask_address, threads)
        # A client closes no cluster that it was handed, and that one's event loop would run on.
        self._own = self.client.cluster if dask_address is None else None
        # a client whose scheduler has gone does not tell any more
        self._address = str(getattr(self.client.scheduler, "address", dask_address))
        self._remote: Future[Any] | None = None
        self._held: dict[Key, Future[Any]] = {}
        self._on_cluster = dask_address is not None
        # "None" where Dask is told to have none; a cluster of ours has none either
        link = self.client.dashboard_link if self._on_cluster else None
        self._dashboard = str(link or "")
        self._threads = sum(self.client.nthreads().values()) or threads
        self._prepare()
        self.finished = 0.0  # when the latest superbatch was
        # Sequences stay in memory where the next superbatch draws from them again: always, where there is
        # room for all that there are.
        self._keeps = plan.all_fit or (plan.coverage == "random" and plan.replaced < plan.sequences)

    def start(self, epoch: int, index: int, slot: Slot) -> Filling:
        """Plan superbatch ``index`` of ``epoch`` and have Dask work on it.

        Dask takes tasks in the order in which they are submitted: a superbatch that is started while
        another is being filled keeps the threads busy when that one comes to its end.
        """
        began = time.monotonic()
        plan = self.plan.superbatch(epoch, index)
        planned = time.monotonic()
        name = f"{self.name}-{next(_numbers)}"
        gr.slots[name] = slot
        filling = Filling(self, plan, name, slot, began, planned - began)
        try:
            self._begin(filling)
        except LOST as error:
            raise gone(self._address) from error
        return filling

    def again(self, filling: Filling) -> None:
        """Start a superbatch anew whose tasks were lost, with a worker that died for example.

        The plan is the same, and so are the samples.
        """
        self._prepare()
        self._begin(filling)

    def _prepare(self) -> None:
        """Give the workers of a cluster what tasks need; forget what they may not have any more."""
        self._held = {}
        self._groups = gr.hold_groups(self.client)
        if not self._on_cluster:
            return
        for wait in (*_WAITS, None):
            try:
                self._remote = self.client.scatter(self.cutter, broadcast=True, hash=False)
                return
            except (OSError, TimeoutError) as error:
                # The scheduler may not know yet that a worker has died.
                if wait is None or self.client.status != "running":
                    raise gone(self._address) from error
                time.sleep(wait)

    def _begin(self, filling: Filling) -> None:
        began, plan = time.monotonic(), filling.plan
        keep = self._keeps or self.cutter.drops
        # Few sequences with many arrays keep all threads busy only if each array is a task.
        fused = not keep and len(plan.sequences) >= 2 * self._threads
        graph = gr.build(
            self.name, self.cutter, plan, filling.name, self._held, self._remote, fused
        )
        filling.loads, filling.samples = self._submit(graph, keep)
        filling.filled = Filled(
            samples=len(plan.starts),
            plan_seconds=filling.plan_seconds,
            graph_seconds=time.monotonic() - began,
            decoded_bytes=graph.decoded_bytes,
            sequences=len(plan.sequences),
            loaded=len(graph.loads) - len(self._held.keys() & graph.loads.keys()),
            began=filling.began,
            dashboard=self._dashboard,
        )
        if self.plan.all_fit:
            # Those that give no sample this time as well.
            self._held = {**self._held, **filling.loads}
        else:
            self._held = filling.loads if self._keeps else {}

    def idle(self) -> None:
        """Nothing: what comes next is known when it is asked for."""

    def stuck(self) -> SuperbatchError | None:
        """A read that has been under way for too long; Dask's threads cannot be interrupted."""
        hanging = reads.stuck(self.cutter.patience.timeout)
        if hanging is None:
            return None
        return SuperbatchError(
            f"a read hangs: {hanging}; check the store, or raise read_timeout={self.cutter.patience.timeout:g}"
        )

    def close(self) -> None:
        """Let go of the sequences in memory, and of the client."""
        self._held = {}
        self._groups = []
        self._remote = None
        gr.cutters.pop(self.name, None)
        self.client.close()
        if self._own is not None:
            with contextlib.suppress(TimeoutError):  # a read that hangs is not waited for
                self._own.close(timeout=_CLOSE_SECONDS)

    def _submit(self, graph: Graph, keep: bool) -> tuple[dict[Key, Future[Any]], list[Future[Any]]]:
        if not keep:
            return {}, graph.submit(self.client, graph.samples)
        futures = graph.submit(self.client, [*graph.new.values(), *graph.samples])
        loads = {block: future for block, future in self._held.items() if block in graph.loads}
        loads.update(zip(graph.new, futures, strict=False))
        return loads, futures[len(graph.new) :]


@dataclass
class Filling:
    """A superbatch that Dask is working on."""

    filler: ArchiveFiller
    plan: SuperbatchPlan
    name: str  # of the slot, for the tasks
    slot: Slot
    began: float
    plan_seconds: float
    loads: dict[Key, Future[Any]] = field(init=False)
    samples: list[Future[Any]] = field(init=False)
    filled: Filled = field(init=False)
    # What a task failed with, which may be of the same kind as what Dask raises where it has lost one.
    failed: BaseException | None = field(default=None, init=False)

    def finish(self) -> Filled:
        """Wait until the slot is filled.

        Raises
        ------
        Exception
            What a task failed with, as it was.
        """
        try:
            self._make()
        finally:
            gr.slots.pop(self.name, None)
        filled, filler = self.filled, self.filler
        filled.ended = time.monotonic()
        # While the one before was not finished, the threads worked on that one.
        filled.load_seconds = filled.ended - max(filled.began, filler.finished)
        filler.finished = filled.ended
        # Dask remembers the prefix of every key that it has seen, 100,000 of them: some 4 kB a superbatch.
        key_split.cache_clear()
        return filled

    def _make(self) -> None:
        for left in reversed(range(RECOVERIES + 1)):
            try:
                if left < RECOVERIES:
                    self.filler.again(self)
                dropped = self._collect(self.samples)
                if self.filler.cutter.drops:
                    self._redraw(dropped)
                return
            except LOST as error:
                if error is self.failed:
                    raise
                if not left or self.filler.client.status != "running":
                    raise gone(self.filler._address) from error

    def _collect(self, samples: list[Future[Any]]) -> Ints:
        """Wait for the samples; the rows that hold none, rejected or not readable."""
        slot, filled = self.slot, self.filled
        dropped = []
        for future in as_completed(samples, loop=self.filler.client.loop):
            report = future.result()
            if isinstance(report, Failure):
                self.filler.client.cancel(samples)
                self.failed = report.error()
                raise self.failed
            filled.cut_seconds += report.seconds
            filled.read_seconds += report.read_seconds
            filled.fetch_seconds += report.fetch_seconds
            filled.read_retries += report.retries
            filled.rejected += len(report.rejected)
            filled.unread += len(report.unread)
            filled.bad += report.bad
            if report.windows is not None:
                for name, values in report.windows.items():
                    slot[name][report.rows] = values
            dropped += [report.rejected, report.unread]
            future.release()
        return np.concatenate(dropped) if dropped else np.empty(0, dtype=np.int64)

    def _redraw(self, dropped: Ints) -> None:
        """Draw samples that were dropped again, then close the gaps that are left.

        They are drawn again from all sequences of the superbatch, not from their own alone: else
        sequences with few acceptable windows would count for more than they hold.
        """
        filled = self.filled
        if self.filler.plan.coverage == "random":
            for attempt in range(ATTEMPTS):
                if not len(dropped):
                    break
                filled.retried += len(dropped)
                dropped = self._collect(self._again(np.sort(dropped), attempt))
        _close_gaps(self.slot, filled.samples, dropped)
        filled.samples -= len(dropped)

    def _again(self, rows: Ints, attempt: int) -> list[Future[Any]]:
        """Have new samples drawn for some rows."""
        filler, plan = self.filler, self.plan
        starts, sequence_of = filler.plan.again(plan, rows, attempt)
        boxes = filler.cutter.boxes(plan.sequences)
        graph = Graph(loads={block: TaskRef(future.key) for block, future in self.loads.items()})
        for sequence in np.unique(sequence_of):
            mine = sequence_of == sequence
            graph.add_sample(
                filler.name,
                self.name,
                list(enumerate(boxes[sequence])),
                starts[mine],
                rows[mine],
                plan.noise(rows[mine]) if filler.cutter.noisy else None,
                filler._remote,
            )
        return graph.submit(filler.client, graph.samples, priority=1)


def _close_gaps(slot: Slot, samples: int, gaps: Ints) -> None:
    """Move the last samples into the rows that hold none."""
    left = samples - len(gaps)
    empty = np.sort(gaps[gaps < left])
    full = np.setdiff1d(np.arange(left, samples), gaps)
    for values in slot.values():
        values[empty] = values[full]
