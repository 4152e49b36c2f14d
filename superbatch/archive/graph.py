"""The Dask graph of one superbatch: a ``load`` for each block, a ``sample`` for each sequence.

Its size does not depend on the number of samples, nor on the length of the archive. Tasks are functions of
this module that look up what belongs to the process (open arrays, the slot) by name: Dask
pickles a graph even for a client in its own process, and what a task closed over would be copied.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.task_spec import Task, TaskRef
from distributed import Client, Future

from superbatch.archive import boxes as bx
from superbatch.archive import patience
from superbatch.archive.boxes import Box
from superbatch.archive.buffers import Buffers
from superbatch.archive.cut import Cutter, Report
from superbatch.archive.patience import Loaded
from superbatch.archive.plan import SuperbatchPlan
from superbatch.archive.read_bytes import fetching
from superbatch.failure import Failure

Ints = npt.NDArray[np.int64]
Slot = Mapping[str, npt.NDArray[Any]]

# What tasks look up: the cutter of each source that is open in this process, and the slot that is
# being filled, by the name that the graph carries.
cutters: dict[str, Cutter] = {}
slots: dict[str, Slot] = {}
buffers = Buffers()

Key = tuple[int, Box]  # array, box
TaskKey = tuple[str, str]  # kind, and a name that is used once


@dataclass
class Graph:
    """The tasks of one superbatch, not yet submitted: Dask's own.

    As ``dask.delayed`` objects they would take longer to submit, and each would leave a record of
    some 240 bytes with the scheduler, for ever (benchmarks/NOTES.md).
    """

    tasks: dict[TaskKey, Task] = field(default_factory=dict)
    # What stands for a block: a task of this graph or of an earlier one, or, where the
    # task of its only sequence reads it, what is to be read.
    loads: dict[Key, TaskRef | Reading] = field(default_factory=dict)
    new: dict[Key, TaskKey] = field(default_factory=dict)  # blocks that tasks of this graph load
    samples: list[TaskKey] = field(default_factory=list)
    decoded_bytes: int = 0

    def add(self, function: Callable[..., Any], *arguments: Any) -> TaskKey:
        """Add a task; an argument that is a ``TaskRef`` is replaced by that task's result."""
        key = _key(function)
        self.tasks[key] = Task(key, function, *arguments)
        return key

    def submit(self, client: Client, keys: Sequence[TaskKey], **options: Any) -> list[Future[Any]]:
        """Have Dask work on it; the futures of ``keys``."""
        futures: list[Future[Any]] = client.get(self.tasks, list(keys), sync=False, **options)
        return futures

    def add_sample(
        self,
        name: str,
        slot: str,
        keys: Sequence[Key],
        starts: Ints,
        rows: Ints,
        noise: npt.NDArray[np.float64] | None,
        remote: Any,
        new: tuple[bool, ...] | None = None,
    ) -> None:
        """Add the task that cuts the samples of one sequence, from blocks of ``loads``."""
        boxes = tuple(box for _, box in keys)
        cutting = Cutting(name, slot, boxes, new or (False,) * len(boxes), starts, rows, noise)
        self.samples.append(self.add(sample, cutting, remote, *(self.loads[key] for key in keys)))


class Reading:
    """What a ``load`` task is to read. Not a tuple: Dask would walk through it, for each task."""

    __slots__ = ("array", "box", "name", "sources")

    def __init__(self, name: str, array: int, box: Box, sources: tuple[Box, ...]) -> None:
        self.name, self.array, self.box = name, array, box
        self.sources = sources  # the boxes of the blocks that the task is given


class Cutting:
    """What a ``sample`` task is to cut."""

    __slots__ = ("boxes", "name", "new", "noise", "rows", "slot", "starts")

    def __init__(
        self,
        name: str,
        slot: str,
        boxes: tuple[Box, ...],
        new: tuple[bool, ...],
        starts: Ints,
        rows: Ints,
        noise: npt.NDArray[np.float64] | None,
    ) -> None:
        self.name, self.slot, self.boxes = name, slot, boxes
        self.new = new  # of each block: whether this task is the one to report how it was read
        self.starts, self.rows, self.noise = starts, rows, noise


def load(reading: Reading, cutter: Cutter | None, *sources: Loaded | Failure) -> Loaded | Failure:
    """Read a block; what other blocks hold already is copied from them.

    ``cutter`` is None in the loader's own process, which looks it up; on a worker of a given
    cluster, it has come along.
    """
    try:
        began = time.monotonic()
        fetched = fetching.seconds
        used = cutter or cutters[reading.name]
        stored, box = used.arrays[reading.array], reading.box
        loaded = Loaded(buffers.empty(bx.shape(box), stored.raw_dtype))
        block = loaded.data
        covered = []
        for other, source in zip(reading.sources, sources, strict=True):
            if isinstance(source, Failure):
                return source
            shared = bx.intersection(box, other)
            if shared is not None:
                block[bx.slices(shared, box)] = source.data[bx.slices(shared, other)]
                covered.append(shared)
                loaded.bad += source.bad
        for part in bx.remainder(box, covered):
            patience.read(stored, part, block, box, used.patience, loaded)
        loaded.seconds = time.monotonic() - began
        loaded.fetch_seconds = fetching.seconds - fetched
        return loaded
    except Exception as error:
        return Failure.of(error)


def sample(
    cutting: Cutting, cutter: Cutter | None, *blocks: Loaded | Failure | Reading
) -> Report | Failure:
    """Cut the samples of one sequence straight into the slot. A block that nobody else needs is read here.

    On a worker of a given cluster they are cut into memory of their own, and travel back: the
    windows do, not the blocks.
    """
    try:
        begin = time.monotonic()
        loaded = []
        for given in blocks:
            block = load(given, cutter) if isinstance(given, Reading) else given
            if isinstance(block, Failure):
                return block
            loaded.append(block)
        reading = sum(
            block.seconds
            for block, given in zip(loaded, blocks, strict=True)
            if isinstance(given, Reading)
        )
        rows = cutting.rows
        if cutter is None:
            at, slot = rows, slots[cutting.slot]
        else:
            at = np.arange(len(rows), dtype=np.int64)
            slot = {
                name: np.zeros((len(rows), *shape), dtype)
                for name, (shape, dtype) in cutter.fields.items()
            }
        used = cutter or cutters[cutting.name]
        report = used.cut(
            loaded, cutting.boxes, cutting.starts, at, slot, cutting.new, cutting.noise
        )
        report.seconds = time.monotonic() - begin - reading
        if cutter is not None:
            report.rejected, report.unread = rows[report.rejected], rows[report.unread]
            report.windows, report.rows = slot, rows
        return report
    except Exception as error:
        return Failure.of(error)


def build(
    name: str,
    cutter: Cutter,
    plan: SuperbatchPlan,
    slot: str,
    held: Mapping[Key, Future[Any]],
    remote: Any = None,
    fused: bool = False,
) -> Graph:
    """The graph of one superbatch.

    Parameters
    ----------
    name : str
        The source's name in ``cutters``.
    cutter : Cutter
    plan : SuperbatchPlan
    slot : str
        The slot's name in ``slots``.
    held : mapping of (array, box) to Future
        Blocks that are in memory still: they are not loaded again.
    remote : Future, optional
        The cutter, scattered to the workers of a given cluster.
    fused : bool
        Read a block that one sequence alone needs in that sequence's own task. Dask takes about a
        millisecond for each task, which is as long as decoding 1 or 2 MB; and fewer blocks are in memory at once.

    Returns
    -------
    Graph
    """
    graph = Graph()
    # Interior sequences first: border sequences then copy what they share with them.
    order = np.lexsort((np.arange(len(plan.sequences)), (plan.sequences % 2).sum(axis=1)))
    needed = [list(enumerate(boxes)) for boxes in cutter.boxes(plan.sequences)]
    # On a cluster a block would travel for the part that another one has in common with it.
    sources = _sources(needed, order, len(cutter.arrays), copy=remote is None)
    alone = _alone(needed, sources) if fused else set()
    for key, others in sources.items():
        if key in held:
            graph.loads[key] = TaskRef(held[key].key)
            continue
        array, box = key
        boxes = tuple(other for _, other in others)
        parts = bx.remainder(box, boxes)
        graph.decoded_bytes += sum(cutter.arrays[array].decoded_bytes(part) for part in parts)
        reading = Reading(name, array, box, boxes)
        if key in alone:
            graph.loads[key] = reading
        else:
            graph.new[key] = graph.add(load, reading, remote, *(graph.loads[k] for k in others))
            graph.loads[key] = TaskRef(graph.new[key])
    unreported = graph.loads.keys() - held.keys()
    for rows, keys in zip(plan.rows(), needed, strict=True):
        if len(rows):
            new = tuple(key in unreported for key in keys)
            unreported -= set(keys)
            noise = plan.noise(rows) if cutter.noisy else None
            graph.add_sample(name, slot, keys, plan.starts[rows], rows, noise, remote, new)
    return graph


def _sources(
    needed: Sequence[Sequence[Key]], order: Ints, arrays: int, copy: bool
) -> dict[Key, list[Key]]:
    """The blocks to load, in order; to ``copy``, each with those before it that hold a part of it."""
    placed: dict[int, list[Key]] = {a: [] for a in range(arrays)}
    sources: dict[Key, list[Key]] = {}
    for number in order.tolist():
        for key in needed[number]:
            before = placed[key[0]]
            if key not in sources:
                sources[key] = [o for o in before if copy and bx.intersection(key[1], o[1])]
                before.append(key)
    return sources


def _alone(needed: Sequence[Sequence[Key]], sources: Mapping[Key, Sequence[Key]]) -> set[Key]:
    """Blocks that one sequence needs, and that no other block has a part in common with."""
    users = Counter(key for keys in needed for key in keys)
    shared = {other for others in sources.values() for other in others}
    return {key for key in sources if users[key] == 1 and not sources[key]} - shared


def hold_groups(client: Client) -> list[Future[Any]]:
    """One task of each kind that is never let go, while the result is kept.

    A scheduler keeps a record of every group of keys that has come to its end, for ever (some 4 kB a
    superbatch). Keys that are tuples have their first part as group, and a group with a task does not end.
    """
    return [client.submit(int, key=_key(function)) for function in (load, sample)]


def _key(function: Callable[..., Any]) -> TaskKey:
    return f"superbatch-{function.__name__}", uuid.uuid4().hex
