"""In the loader process: runs the graph of each superbatch and keeps what the next one needs."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client, Future, as_completed

from superbatch.archive import graph as gr
from superbatch.archive.client import connect
from superbatch.archive.cut import Cutter
from superbatch.archive.graph import Graph, Key
from superbatch.archive.plan import Plan, SuperbatchPlan
from superbatch.archive.read_config import configure
from superbatch.errors import SuperbatchError
from superbatch.failure import Failure
from superbatch.source import Filled, Slot

Ints = npt.NDArray[np.int64]

# A sample that is rejected is drawn again this many times before its place is given up.
ATTEMPTS = 10

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
        self._remote: Future[Any] | None = None
        if dask_address is not None:
            self._remote = self.client.scatter(cutter, broadcast=True, hash=False)
        self._held: dict[Key, Future[Any]] = {}
        self.finished = 0.0  # when the latest superbatch was
        # Sequences stay in memory where the next superbatch draws from them again, and where
        # samples may have to be drawn once more.
        self._keeps = plan.coverage == "random" and plan.replaced < plan.sequences

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
        graph = gr.build(self.name, self.cutter, plan, name, self._held, self._remote)
        keep = self._keeps or self.cutter.reject is not None
        loads, samples = self._submit(graph, keep)
        filled = Filled(
            samples=len(plan.starts),
            plan_seconds=planned - began,
            graph_seconds=time.monotonic() - planned,
            decoded_bytes=graph.decoded_bytes,
            sequences=len(plan.sequences),
            loaded=len(graph.loads) - len(self._held.keys() & graph.loads.keys()),
            began=began,
        )
        self._held = loads if self._keeps else {}
        return Filling(self, plan, name, slot, loads, samples, filled)

    def close(self) -> None:
        """Let go of the sequences in memory, and of the client."""
        self._held = {}
        self._remote = None
        gr.cutters.pop(self.name, None)
        self.client.close()

    def _submit(self, graph: Graph, keep: bool) -> tuple[dict[Key, Future[Any]], list[Future[Any]]]:
        if not keep:
            return {}, self.client.compute(graph.samples, optimize_graph=False)
        new = [key for key, value in graph.loads.items() if not isinstance(value, Future)]
        wanted = [graph.loads[key] for key in new] + graph.samples
        futures = self.client.compute(wanted, optimize_graph=False)
        loads = dict(graph.loads)
        loads.update(zip(new, futures, strict=False))
        return loads, futures[len(new) :]


@dataclass
class Filling:
    """A superbatch that Dask is working on."""

    filler: ArchiveFiller
    plan: SuperbatchPlan
    name: str  # of the slot, for the tasks
    slot: Slot
    loads: dict[Key, Future[Any]]
    samples: list[Future[Any]]
    filled: Filled

    def finish(self) -> Filled:
        """Wait until the slot is filled.

        Raises
        ------
        Exception
            What a task failed with, as it was.
        """
        try:
            rejected = self._collect(self.samples)
            if self.filler.cutter.reject is not None:
                self._redraw(rejected)
        finally:
            gr.slots.pop(self.name, None)
        filled, filler = self.filled, self.filler
        filled.ended = time.monotonic()
        # While the one before was not finished, the threads worked on that one.
        filled.load_seconds = filled.ended - max(filled.began, filler.finished)
        filler.finished = filled.ended
        return filled

    def _collect(self, samples: list[Future[Any]]) -> Ints:
        """Wait for the samples; the rows that were rejected."""
        slot, filled = self.slot, self.filled
        rejected = []
        for future in as_completed(samples, loop=self.filler.client.loop):
            result = future.result()
            if isinstance(result, Failure):
                self.filler.client.cancel(samples)
                raise result.error()
            filled.cut_seconds += result.seconds
            if result.windows is not None:
                for name, values in result.windows.items():
                    slot[name][result.rows] = values
            rejected.append(result.rejected)
            future.release()
        return np.concatenate(rejected) if rejected else np.empty(0, dtype=np.int64)

    def _redraw(self, rejected: Ints) -> None:
        """Draw rejected samples again, then close the gaps that are left.

        They are drawn again from all sequences of the superbatch, not from their own alone: else
        sequences with few acceptable windows would count for more than they hold.
        """
        plan, filled = self.plan, self.filled
        filled.rejected += len(rejected)
        if self.filler.plan.coverage == "random":
            for attempt in range(ATTEMPTS):
                if not len(rejected):
                    break
                rejected = np.sort(rejected)
                starts, sequence_of = self.filler.plan.again(plan, rejected, attempt)
                filled.retried += len(rejected)
                tasks = []
                boxes = self.filler.cutter.boxes(plan.sequences)
                for sequence in np.unique(sequence_of):
                    mine = sequence_of == sequence
                    keys = list(enumerate(boxes[sequence]))
                    tasks.append(
                        gr.sample_task(
                            self.filler.name,
                            self.name,
                            keys,
                            self.loads,
                            starts[mine],
                            rejected[mine],
                            self.filler._remote,
                        )
                    )
                futures = self.filler.client.compute(tasks, optimize_graph=False, priority=1)
                rejected = self._collect(futures)
                filled.rejected += len(rejected)
        if len(rejected) == filled.samples:
            raise SuperbatchError(
                f"reject turned down all {filled.rejected} samples that were drawn for superbatch {plan.index}: "
                f"let it pass more, or rule places out beforehand with valid="
            )
        _close_gaps(self.slot, filled.samples, rejected)
        filled.samples -= len(rejected)


def _close_gaps(slot: Slot, samples: int, gaps: Ints) -> None:
    """Move the last samples into the rows that hold none."""
    left = samples - len(gaps)
    empty = np.sort(gaps[gaps < left])
    full = np.setdiff1d(np.arange(left, samples), gaps)
    for values in slot.values():
        values[empty] = values[full]
