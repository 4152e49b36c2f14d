"""What is measured of superbatch, each measurement on a dataset of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.peers import ANCHOR, check_batch
from benchmarks.workloads import Workload, position_array

WARM_SUPERBATCHES = 4
"""Superbatches before the clock starts: the small ones, and those that touch slots and buffers for the first time."""


class SuperbatchEntrant:
    """superbatch in its contestant's process; every turn makes a dataset and closes it."""

    def __init__(self, workload: Workload, store: Path, cores: int) -> None:
        import torch
        import xarray  # noqa: F401  # imported here, so that no turn pays for it

        import superbatch

        torch.set_num_threads(cores)
        _ = superbatch.ArchiveSource, superbatch.SuperbatchDataset
        self.workload, self.store = workload, store

    def turn(self, what: str, **settings: Any) -> Any:
        measure = {
            "fresh": fresh,
            "served": served,
            "stall": stall,
            "memory": memory,
            "length": length,
            "check": check,
        }[what]
        return measure(self.workload, self.store, **settings)

    def close(self) -> None:
        pass


def fresh(
    workload: Workload,
    store: Path,
    seconds: float,
    turnover: float = 1.0,
    loaders: int = 1,
    **dataset_settings: Any,
) -> dict[str, float]:
    """Fresh samples a second at one replay, read as fast as the loop can; time to first batch.

    Whole superbatches are timed, from a place in one to the same place in a later one, so it does not
    matter that batches come in bursts.
    """
    import superbatch

    made = time.perf_counter()
    dataset = superbatch.SuperbatchDataset(
        workload.source(store, turnover=turnover),
        batch_size=workload.batch_size,
        replays=1,
        loaders=loaders,
        **dataset_settings,
    )
    began = time.perf_counter()
    with dataset:
        batches = iter(dataset)
        next(batches)
        first = time.perf_counter()
        count = workload.samples // workload.batch_size
        _take(batches, WARM_SUPERBATCHES * count)
        before = dataset.stats()
        superbatches = 0
        with machine.stopwatch() as taken:
            start = time.perf_counter()
            # As many as there are slots are made at a time, and come one after the other: so many are timed together.
            while not superbatches or time.perf_counter() - start < seconds:
                _take(batches, (loaders + 1) * count)
                superbatches += loaders + 1
        after = dataset.stats()
    loaded = after.superbatches - before.superbatches
    return {
        "samples": superbatches * workload.samples,
        "seconds": taken["seconds"],
        "cpu_seconds": taken["cpu_seconds"],
        "superbatches": superbatches,
        "decoded_bytes": after.decoded_bytes - before.decoded_bytes,
        "constructor_seconds": began - made,
        "first_batch_seconds": first - began,
        "graph_seconds": (after.graph_seconds - before.graph_seconds) / max(1, loaded),
        "plan_seconds": (after.plan_seconds - before.plan_seconds) / max(1, loaded),
    }


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in islice(batches, count):
        pass


def served(workload: Workload, store: Path, seconds: float, rounds: int = 5) -> dict[str, Any]:
    """Batches a second in replays, and of ``index_select`` on a plain tensor, in turns.

    The loader has filled the next slot and waits for one to be free before the clock starts. The plain
    tensor has the shape of the superbatch's first array.
    """
    import torch

    import superbatch

    array = workload.reference
    plain = torch.zeros((workload.samples, *array.window_shape), dtype=getattr(torch, array.dtype))
    dataset = superbatch.SuperbatchDataset(
        workload.source(store),
        batch_size=workload.batch_size,
        replays=1_000_000,
    )
    rates: dict[str, list[float]] = {"superbatch": [], "index_select": []}
    with dataset:
        batches = iter(dataset)
        next(batches)
        until_idle(batches, time.monotonic() + 60)
        selected = _selections(plain, workload.batch_size)
        for _ in range(rounds):
            rates["superbatch"].append(_rate(batches, seconds / rounds / 2))
            rates["index_select"].append(_rate(selected, seconds / rounds / 2))
    return rates


def until_idle(batches: Iterator[Any], deadline: float) -> None:
    """Go on reading until this process's children take no CPU: the next slot is filled."""
    while time.monotonic() < deadline:
        _rate(batches, 0.3)
        cpu, own = machine.cpu_seconds(), time.process_time()
        _rate(batches, 0.3)
        if machine.cpu_seconds() - cpu - (time.process_time() - own) < 0.05:
            return
    raise TimeoutError("the loaders were still busy after 60 s")


def _rate(batches: Iterator[Any], seconds: float) -> float:
    taken, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for _ in islice(batches, 64):
            pass
        taken += 64
    return taken / elapsed


def _selections(plain: Any, batch_size: int) -> Iterator[dict[str, Any]]:
    """What replays are compared with: shuffled rows of a tensor, batch by batch, for ever."""
    import torch

    while True:
        for rows in torch.randperm(len(plain)).split(batch_size):
            yield {"plain": torch.index_select(plain, 0, rows)}


def stall(workload: Workload, store: Path, seconds: float, step_seconds: float) -> dict[str, float]:
    """A training loop whose step takes ``step_seconds``, spent waiting as for a GPU.

    Stall is counted twice: by superbatch itself, as its wait for superbatches, and from outside, as
    the time by which a batch took longer than the median batch. Only the first batch is not counted.
    """
    import superbatch

    dataset = superbatch.SuperbatchDataset(workload.source(store), batch_size=workload.batch_size)
    waits = []
    with dataset:
        batches = iter(dataset)
        next(batches)
        before = dataset.stats()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            time.sleep(step_seconds)
            asked = time.perf_counter()
            next(batches)
            waits.append(time.perf_counter() - asked)
        elapsed = time.perf_counter() - start
        stats = dataset.stats()
    over = np.asarray(waits) - np.median(waits)
    return {
        "seconds": elapsed,
        "step_seconds": step_seconds,
        "stall_fraction": (stats.stall_seconds - before.stall_seconds) / elapsed,
        "stall_fraction_outside": float(over[over > 0].sum() / elapsed),
        "longest_wait_seconds": max(waits),
        "median_wait_seconds": float(np.median(waits)),
        "iterations": stats.iterations,
        "fresh": stats.fresh,
        "replayed": stats.replayed,
    }


def memory(
    workload: Workload, store: Path, superbatches: int = 3, turnover: float = 1.0
) -> dict[str, float]:
    """Peak memory of all processes at one replay, shared pages counted once.

    ``before_bytes`` is what this process had before there was a dataset: Python, NumPy, torch.
    """
    import superbatch

    with machine.PeakMemory() as seen:
        dataset = superbatch.SuperbatchDataset(
            workload.source(store, turnover=turnover), batch_size=workload.batch_size, replays=1
        )
        with dataset:
            _take(iter(dataset), superbatches * workload.samples // workload.batch_size)
    return {
        "peak_bytes": seen.peak,
        "before_bytes": seen.before,
        "slot_bytes": workload.samples * workload.sample_bytes,
        "sequences_bytes": workload.superbatch_decoded_bytes,
        "sequence_bytes": workload.superbatch_decoded_bytes / workload.sequences,
    }


def length(workload: Workload, store: Path, superbatches: int = 5) -> dict[str, float]:
    """What grows with the length of an archive, if anything does: no chunk is present.

    Superbatches of the short archive draw some of their sequences twice, and load them once: so what
    loading takes is given for each sequence that is loaded.
    """
    import superbatch

    start = time.perf_counter()
    source = workload.source(store)
    opened = time.perf_counter()
    dataset = superbatch.SuperbatchDataset(source, batch_size=workload.batch_size, replays=1)
    made = time.perf_counter()
    with dataset:
        batches = iter(dataset)
        next(batches)
        first = time.perf_counter()
        count = workload.samples // workload.batch_size
        _take(batches, WARM_SUPERBATCHES * count)
        before = dataset.stats()
        begin = time.perf_counter()
        _take(batches, superbatches * count)
        end = time.perf_counter()
        after = dataset.stats()
    loaded = max(1, after.superbatches - before.superbatches)
    sequences = max(1, after.sequences - before.sequences)
    return {
        "open_seconds": opened - start,
        "constructor_seconds": made - opened,
        "first_batch_seconds": first - made,
        "superbatch_seconds": (end - begin) / superbatches,
        "sequences": sequences / loaded,
        "plan_seconds": (after.plan_seconds - before.plan_seconds) / loaded,
        "graph_seconds": (after.graph_seconds - before.graph_seconds) / loaded,
        "sequence_seconds": (end - begin) / superbatches / (sequences / loaded),
        "sequence_graph_seconds": (after.graph_seconds - before.graph_seconds) / sequences,
    }


def check(workload: Workload, store: Path) -> int:
    """Compare a served batch with direct reads at its anchors; returns samples compared."""
    import superbatch

    source = workload.source(store, where=True)
    with superbatch.SuperbatchDataset(source, batch_size=workload.batch_size) as dataset:
        batch = next(iter(dataset))
    places = [np.asarray(batch[position_array(d)])[:, 0] for d in workload.anchor_dims]
    return check_batch({**batch, ANCHOR: np.stack(places, axis=1)}, workload, store)
