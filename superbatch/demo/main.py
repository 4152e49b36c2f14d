"""The demo from beginning to end."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import superbatch as sb
from superbatch.demo.climate import climate_task
from superbatch.demo.network import Learner
from superbatch.demo.own import own_task
from superbatch.demo.plain import Rate, measure, plain_loader
from superbatch.demo.task import Task, heldout_windows
from superbatch.demo.training import train
from superbatch.errors import ArgumentError, SuperbatchError

FIELDS = "fields"  # the one modality
COMPARE_SECONDS = 6.0  # for each loader that is compared
SLOT_BYTES = 24_000_000
LOAD_BYTES = 256_000_000  # read for one superbatch


def demo(arguments: argparse.Namespace) -> int:
    """Run the demo; return its exit status."""
    began = time.monotonic()
    try:
        from superbatch.demo import report
    except ImportError as error:
        raise SuperbatchError(
            f"the demo draws with {error.name}: run  pip install 'superbatch[demo]'"
        ) from error
    if arguments.store is None and (arguments.array or arguments.window):
        raise ArgumentError(
            "--array and --window say what to take of a store: give it with --store"
        )
    folder = _folder(arguments.dir)
    if arguments.stream:
        from superbatch.demo import streaming

        if arguments.store is not None:
            raise ArgumentError("--stream trains on simulations: leave --store out, or --stream")
        return streaming.run(arguments, folder)
    if arguments.store is None:
        task = climate_task(folder)
    else:
        task = own_task(arguments.store, arguments.array, arguments.window)
    batch_size = arguments.batch_size or _batch_size(task)
    print(_heading(task, batch_size), flush=True)

    # a core is left to the loader; so small a network has no use for many
    torch.set_num_threads(max(1, min(4, (os.cpu_count() or 2) - 1)))
    torch.manual_seed(arguments.seed)
    learner = Learner(task.shape, task.axis)
    heldout = heldout_windows(task, seed=arguments.seed)
    judged = None if heldout is None else list(torch.from_numpy(heldout).split(batch_size))
    with sb.SuperbatchDataset(
        source_of(task, batch_size), batch_size=batch_size, replays=(1, 4), seed=arguments.seed
    ) as dataset:
        history = train(
            dataset, FIELDS, learner, judged, arguments.steps, arguments.seconds, task.unit
        )
        stats = dataset.stats()
    rates = _compare(task, batch_size, arguments.compare, arguments.seed)

    print(report.table(task, history, stats, rates))
    path = folder / "demo.png"
    report.picture(path, task, history, stats)
    print(f"\npicture: {path}\nall in {time.monotonic() - began:.0f} s")
    return 0


def source_of(task: Task, batch_size: int) -> sb.ArchiveSource:
    """A source of small superbatches: two slots of them fit in the 64 MB that containers have."""
    # a dimension that is taken whole has no place in a window, but one at least has to be there
    extents = {d: n for d, n in task.window.items() if n < task.train.sizes[d]}
    extents = extents or {str(task.train.dims[0]): task.shape[0]}
    # so many chunks that reading past their end, for the last windows, costs little
    whole = {d: -(-task.train.sizes[d] // task.chunks[d]) for d in extents}
    first = task.time if task.time in extents else next(iter(extents))
    chunks = {
        d: min(whole[d], max(3 if d == first else 1, -(-2 * n // task.chunks[d])))
        for d, n in extents.items()
    }
    named: dict[str, Any] = dict(extents)
    window = sb.Window(task.train, **named)
    samples = max(batch_size, min(4096, SLOT_BYTES // task.sample_bytes))
    source = sb.ArchiveSource({FIELDS: window}, samples=samples, chunks_per_sequence=chunks)
    different = math.prod(-(-whole[d] // chunks[d]) for d in extents)
    sequences = max(1, min(32, different, LOAD_BYTES // source.sequence_bytes, samples))
    return sb.ArchiveSource(
        {FIELDS: window}, samples=samples, sequences=sequences, chunks_per_sequence=chunks
    )


def _compare(task: Task, batch_size: int, samples: int, seed: int) -> list[Rate]:
    def superbatch() -> sb.SuperbatchDataset:
        return sb.SuperbatchDataset(
            source_of(task, batch_size), batch_size=batch_size, replays=1, seed=seed
        )

    def run(name: str, make: Callable[[], Iterable[Any]]) -> Rate:
        return measure(name, make, batch_size, samples, COMPARE_SECONDS)

    with superbatch() as dataset:
        rates = [run("superbatch", lambda: dataset)]
    for workers in (0, 2):
        plain = partial(plain_loader, task, batch_size, samples, workers, seed)
        rates.append(run(f"plain DataLoader, {workers} workers", plain))
    return rates


def _folder(given: str | None) -> Path:
    if given is not None:
        folder = Path(given).expanduser()
    else:
        from platformdirs import user_cache_path

        folder = user_cache_path("superbatch")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _batch_size(task: Task) -> int:
    """32, or less where samples are so large that a step on a CPU would take long."""
    elements = task.sample_bytes // task.train.dtype.itemsize
    return max(2, min(32, 640_000 // max(elements, 1)))


def _heading(task: Task, batch_size: int) -> str:
    sizes = " × ".join(f"{n} {dim}" for dim, n in task.window.items() if n > 1) or "1 value"
    indented = "\n            ".join(task.split)
    return (
        f"superbatch demo: {task.title}\n"
        f"  store     {task.where}\n"
        f"  sample    {sizes}, {task.train.dtype}, {_size(task.sample_bytes)}\n"
        f"  batch     {batch_size} samples\n"
        f"  windows   {indented}\n"
    )


def _size(number: int) -> str:
    power, unit = (1, "bytes") if number < 1e3 else (1e3, "kB") if number < 1e6 else (1e6, "MB")
    return f"{number / power:.3g} {unit}"
