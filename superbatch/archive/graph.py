"""The Dask graph of one superbatch: a ``load`` for each block, a ``sample`` for each sequence.

Its size does not depend on the number of samples, nor on the length of the archive. Tasks are functions of
this module that look up what belongs to the process (open arrays, the slot) by name: Dask
pickles a graph even for a client in its own process, and what a task closed over would be copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
from dask.delayed import Delayed

from superbatch.archive import boxes as bx
from superbatch.archive.boxes import Box
from superbatch.archive.buffers import Buffers
from superbatch.archive.cut import Cutter
from superbatch.archive.plan import SuperbatchPlan
from superbatch.failure import Failure

Ints = npt.NDArray[np.int64]
Block = npt.NDArray[Any]
Slot = Mapping[str, npt.NDArray[Any]]

# What tasks look up: the cutter of each source that is open in this process, and the slot that is
# being filled, by the name that the graph carries.
cutters: dict[str, Cutter] = {}
slots: dict[str, Slot] = {}
buffers = Buffers()

Key = tuple[int, Box]  # array, box


@dataclass
class Report:
    """What one ``sample`` task did."""

    rejected: Ints
    seconds: float = 0.0
    begin: float = 0.0
    end: float = 0.0
    bytes_read: int = 0
    windows: Slot | None = None
    rows: Ints | None = None


@dataclass
class Graph:
    """The tasks of one superbatch, not yet submitted."""

    loads: dict[Key, Any] = field(default_factory=dict)
    samples: list[Delayed] = field(default_factory=list)
    decoded_bytes: int = 0


def load(name: str, array: int, box: Box, sources: Sequence[tuple[Box, Any]]) -> Block | Failure:
    """Read a block; what other blocks hold already is copied from them."""
    try:
        stored = cutters[name].arrays[array]
        block = buffers.empty(bx.shape(box), stored.raw_dtype)
        covered = []
        for other, data in sources:
            if isinstance(data, Failure):
                return data
            shared = bx.intersection(box, other)
            if shared is not None:
                block[bx.slices(shared, box)] = data[bx.slices(shared, other)]
                covered.append(shared)
        for part in bx.remainder(box, covered):
            target = block[bx.slices(part, box)]
            if target.flags.c_contiguous:
                stored.read(part, out=target)
            else:
                target[...] = stored.read(part)
        return block
    except Exception as error:
        return Failure.of(error)


def sample(
    name: str,
    slot: str,
    blocks: Sequence[Block | Failure],
    boxes: Sequence[Box],
    starts: Ints,
    rows: Ints,
) -> Report | Failure:
    """Cut the samples of one sequence straight into the slot."""
    try:
        begin = time.monotonic()
        for block in blocks:
            if isinstance(block, Failure):
                return block
        cutter = cutters[name]
        rejected = cutter.cut(blocks, boxes, starts, rows, slots[slot])  # type: ignore[arg-type]
        return Report(rejected, time.monotonic() - begin)
    except Exception as error:
        return Failure.of(error)


def load_remote(
    cutter: Cutter, array: int, box: Box, sources: Sequence[tuple[Box, Any]]
) -> Block | Failure:
    """``load`` on a worker of a given cluster, which has no registry: the cutter comes along."""
    cutters["remote"] = cutter
    return load("remote", array, box, sources)


def sample_remote(
    cutter: Cutter,
    blocks: Sequence[Block | Failure],
    boxes: Sequence[Box],
    starts: Ints,
    rows: Ints,
) -> Report | Failure:
    """``sample`` on a worker of a given cluster: the windows travel back, not the blocks."""
    try:
        for block in blocks:
            if isinstance(block, Failure):
                return block
        windows = {
            field: np.zeros((len(rows), *shape), dtype)
            for field, (shape, dtype) in cutter.fields.items()
        }
        begin = time.monotonic()
        local = np.arange(len(rows), dtype=np.int64)
        rejected = cutter.cut(blocks, boxes, starts, local, windows)  # type: ignore[arg-type]
        return Report(rows[rejected], time.monotonic() - begin, windows=windows, rows=rows)
    except Exception as error:
        return Failure.of(error)


def build(
    name: str,
    cutter: Cutter,
    plan: SuperbatchPlan,
    slot: str,
    held: Mapping[Key, Any],
    remote: Any = None,
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

    Returns
    -------
    Graph
    """
    graph = Graph()
    needed: list[list[Key]] = []
    # Interior sequences first: border sequences then copy what they share with them.
    order = np.lexsort((np.arange(len(plan.sequences)), (plan.sequences % 2).sum(axis=1)))
    keys_of = {}
    for number in order.tolist():
        items = plan.sequences[number].tolist()
        keys_of[number] = [(a, cutter.box(a, items)) for a in range(len(cutter.arrays))]
    placed: dict[int, list[Key]] = {a: [] for a in range(len(cutter.arrays))}
    for number in order.tolist():
        for key in keys_of[number]:
            if key not in graph.loads:
                graph.loads[key] = held.get(key)
                if graph.loads[key] is None:
                    graph.loads[key] = _load(name, cutter, key, placed[key[0]], graph, remote)
                placed[key[0]].append(key)
    needed = [keys_of[number] for number in range(len(plan.sequences))]
    for rows, keys in zip(plan.rows(), needed, strict=True):
        if len(rows):
            graph.samples.append(
                sample_task(name, slot, keys, graph.loads, plan.starts[rows], rows, remote)
            )
    return graph


def sample_task(
    name: str,
    slot: str,
    keys: Sequence[Key],
    loads: Mapping[Key, Any],
    starts: Ints,
    rows: Ints,
    remote: Any,
) -> Delayed:
    """One ``sample`` task on blocks that are loaded, or will be."""
    blocks, boxes = [loads[key] for key in keys], tuple(box for _, box in keys)
    if remote is not None:
        return _task(sample_remote, remote, blocks, boxes, starts, rows)
    return _task(sample, name, slot, blocks, boxes, starts, rows)


def _load(
    name: str, cutter: Cutter, key: Key, others: Sequence[Key], graph: Graph, remote: Any
) -> Delayed:
    array, box = key
    sources = [(other[1], graph.loads[other]) for other in others if bx.intersection(box, other[1])]
    covered = [other for other, _ in sources]
    stored = cutter.arrays[array]
    graph.decoded_bytes += sum(stored.decoded_bytes(part) for part in bx.remainder(box, covered))
    if remote is not None:
        return _task(load_remote, remote, array, box, sources)
    return _task(load, name, array, box, sources)


def _task(function: Callable[..., Any], *arguments: Any) -> Delayed:
    task: Delayed = dask.delayed(function, pure=False)(*arguments)
    return task
