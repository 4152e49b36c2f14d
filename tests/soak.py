"""Random faults at random moments of real runs: ``python -m tests.soak --minutes 30``.

Three kinds of run, drawn at random:

- a run in this process whose loaders are killed, again and again, in the middle of whatever they do, and
  whose every batch is compared with a run that nothing happens to;
- a run whose store is damaged, slow, or whose transform fails at a random sample: the error has to name it;
- a training script of its own that is killed, or interrupted, at a random moment.

After each fault: every batch that was served is right (its values say which samples they are), the error said what
happened, no process is left, and no shared memory.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
import zarr

import superbatch as sb
from superbatch.errors import LoaderDied
from tests.counting import CountingStore, reads
from tests.fields import corners, field, write_plain
from tests.processes import all_gone, holders, lines, named_segments, script, shared_memory

Batch = dict[str, torch.Tensor]
Dataset = Iterable[Batch]

WHOLE = field((400, 6))
TRAINER = """
import json, os
import zarr
import superbatch as sb
from tests import processes
from tests.fields import corners, field
whole = field((400, 6))
stored = zarr.open_array(%(store)r, mode="r")
source = sb.ArchiveSource({"field": sb.Window(stored, time=5)}, samples=64, sequences=8)
dataset = sb.SuperbatchDataset(
    source, 8, loaders=%(loaders)d, replays=1, transport=%(transport)r, seed=%(seed)d
)
for number, batch in enumerate(dataset):
    corners(batch["field"], whole)
    if number == 0:
        found = {"loaders": dataset._loaders.pids, "memory": sorted(processes.shared_memory(os.getpid()))}
        print(json.dumps(found), flush=True)
"""


class Soak:
    """Injects faults and counts them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.store = folder / "field.zarr"
        write_plain(self.store, WHOLE, chunks=(10, 6), dimension_names=("time", "x"))

    def source(self, store: object = None, **options: object) -> sb.ArchiveSource:
        array = zarr.open_array(self.store if store is None else store, mode="r")
        options = {"samples": 64, "sequences": 8} | options
        return sb.ArchiveSource({"field": sb.Window(array, time=5)}, **options)

    def settings(self) -> dict[str, object]:
        return {
            "seed": self.random.randrange(1000),
            "replays": self.random.choice([1, 2]),
            "transport": self.random.choice(["shared", "pipe"]),
            "timeout": 60.0,
        }

    def kill_loaders(self, kills: int) -> None:
        """Kill loaders at random moments; every batch is the one that was planned."""
        settings = self.settings()
        turnover = self.random.choice([0.5, 1.0])
        coverage = "random" if turnover < 1 else self.random.choice(["random", "once"])
        source = self.source(turnover=turnover, coverage=coverage)
        loaders = self.random.choice([1, 2])
        epoch = 10 if coverage == "random" else 5
        settings["batches_per_epoch"] = 8 * epoch * settings["replays"]  # type: ignore[operator]
        expected: dict[int, list[list[int]]] = {}
        with sb.SuperbatchDataset(source, 8, **settings) as calm:  # type: ignore[arg-type]
            for number in range(3):
                expected[number] = list(map(starts, calm))
        with sb.SuperbatchDataset(
            source,
            8,
            loaders=loaders,
            restarts=kills,
            **settings,  # type: ignore[arg-type]
        ) as dataset:
            pids: set[int] = set()
            left = kills
            for number in itertools.count():
                dataset.set_epoch(number % 3)
                if left == 0 and number % 3 == 0:
                    break
                quiet = self.random.choice([0.0, 0.0, 0.2])
                for batch, planned in zip(dataset, expected[number % 3], strict=True):
                    assert starts(batch) == planned
                    time.sleep(quiet * self.random.random() * 0.1)
                    if left and self.random.random() < 0.08:
                        victim = self.random.choice(dataset._loaders.pids)
                        pids.update(dataset._loaders.pids)
                        # A loader may be starting, loading, cutting, handing over or idle.
                        os.kill(victim, signal.SIGKILL)
                        left -= 1
                        self.faults["loader killed, replaced"] += 1
            pids.update(dataset._loaders.pids)
        assert all_gone(pids, 5)

    def kill_the_last(self) -> None:
        """Kill a loader that is not replaced."""
        moment, victims = self.random.randrange(40), []

        with sb.SuperbatchDataset(self.source(), 8, **self.settings()) as dataset:  # type: ignore[arg-type]

            def kill(number: int, batch: Batch) -> None:
                starts(batch)
                if number == moment:
                    victims.append(dataset._loaders.pids[0])
                    victims.append(time.monotonic())
                    os.kill(victims[0], signal.SIGKILL)
                assert not victims or time.monotonic() - victims[1] < 2

            error = failure(dataset, kill)
        assert isinstance(error, LoaderDied), error
        assert f"process {victims[0]}" in str(error), error
        assert "SIGKILL" in str(error), error
        assert all_gone(victims[:1], 5)
        self.faults["loader killed, not replaced"] += 1

    def fail_in_transform(self) -> None:
        """A transform fails at a random sample."""
        at = self.random.randrange(100, 380)

        def transform(sample):  # type: ignore[no-untyped-def]
            if int(sample["field"][0, 0]) // 6 >= at:
                raise LookupError(f"nothing at {at} or later")
            return sample

        def check(number: int, batch: Batch) -> None:
            assert max(starts(batch)) < at

        source = self.source(transform=transform)
        with sb.SuperbatchDataset(source, 8, **self.settings()) as dataset:  # type: ignore[arg-type]
            error = failure(dataset, check)
        assert type(error) is LookupError, error
        assert str(error) == f"nothing at {at} or later"
        assert any("anchor at" in note for note in error.__notes__)
        self.faults["transform raised"] += 1

    def corrupt_a_chunk(self) -> None:
        """A chunk is overwritten or cut off while a run is on."""
        copy = self.folder / "damaged.zarr"
        shutil.copytree(self.store, copy)
        number = self.random.randrange(1, 40)
        chunk = copy / "c" / str(number) / "0"
        data = chunk.read_bytes()
        damage = self.random.choice(["cut", "zeroed", "empty"])
        damaged = {"cut": data[: len(data) // 2], "zeroed": bytes(len(data)), "empty": b""}[damage]

        def check(count: int, batch: Batch) -> None:
            starts(batch)
            if count == 0:
                chunk.write_bytes(damaged)

        with sb.SuperbatchDataset(
            self.source(copy, sequences=4),
            8,
            **self.settings(),  # type: ignore[arg-type]
        ) as dataset:
            error = failure(dataset, check)
        notes = "\n".join(getattr(error, "__notes__", []))
        assert f"c/{number}/0" in notes + str(error), (damage, error, notes)
        assert "field" in notes, (error, notes)
        shutil.rmtree(copy)
        self.faults[f"chunk {damage}"] += 1

    def slow_store(self) -> None:
        """Each read takes its time: the loop waits, and everything is right."""
        log = self.folder / "reads.log"
        store = CountingStore.at(self.store, log, delay=self.random.random() * 0.02)
        with sb.SuperbatchDataset(self.source(store), 8, **self.settings()) as dataset:  # type: ignore[arg-type]
            for batch in itertools.islice(dataset, self.random.randrange(8, 40)):
                starts(batch)
            assert dataset.stats().stall_seconds > 0
        self.faults["slow store, left in the middle"] += 1

    def breaking_connections(self) -> None:
        """Reads fail at random, and work when they are tried again: nothing is lost."""
        log = self.folder / "breaks.log"
        log.unlink(missing_ok=True)
        store = CountingStore.at(self.store, log, failing=0.1)
        source = self.source(store, samples=16, coverage="once", retries=10)
        with sb.SuperbatchDataset(source, 8, **self.settings()) as dataset:  # type: ignore[arg-type]
            served = set(itertools.chain.from_iterable(map(starts, dataset)))
            retries = dataset.stats().read_retries
        assert served == set(range(396))
        broken = sum(key.startswith("FAILED") for key, *_ in reads(log))
        assert 0 < retries <= broken  # some were for the next epoch
        self.faults["read that broke, tried again"] += retries

    def leave_chunks_out(self) -> None:
        """Chunks are damaged, and left out: all other samples are served, and the chunks are named."""
        copy = self.folder / "damaged.zarr"
        shutil.copytree(self.store, copy)
        damaged = sorted(self.random.sample(range(1, 40), 20))
        for number in damaged:
            chunk = copy / "c" / str(number) / "0"
            data = chunk.read_bytes()
            chunk.write_bytes(data[: len(data) - self.random.randrange(1, len(data))])
        source = self.source(copy, coverage="once", on_error="skip")
        with sb.SuperbatchDataset(source, 8, **self.settings()) as dataset:  # type: ignore[arg-type]
            served = set(itertools.chain.from_iterable(map(starts, dataset)))
            named = "\n".join(dataset.stats().bad_chunks)
        touched = {s for s in range(396) if {s // 10, (s + 4) // 10} & set(damaged)}
        assert served == set(range(396)) - touched
        assert all(f"c/{number}/0" in named for number in damaged), named
        shutil.rmtree(copy)
        self.faults["chunk damaged, left out"] += len(damaged)

    def end_the_trainer(self) -> None:
        """A training script is killed or interrupted: nothing is left after five seconds."""
        number = self.random.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        options = {
            "store": str(self.store),
            "loaders": self.random.choice([1, 2]),
            "transport": self.random.choice(["shared", "pipe"]),
            "seed": self.random.randrange(1000),
        }
        process = script(self.folder, TRAINER % options)
        try:
            found = json.loads(next(lines(process, 60)))
            time.sleep(self.random.random() * 0.3)
            process.send_signal(number)
            _, err = process.communicate(timeout=10)
        finally:
            process.kill()
        assert process.returncode == -number, err
        assert err.count("Traceback") == (number == signal.SIGINT), err
        assert all_gone(found["loaders"], 5)
        assert not holders(set(found["memory"]))
        self.faults[f"trainer {number.name}"] += 1

    def nothing_is_left(self, before: set[int]) -> None:
        gc.collect()  # an error keeps the frames that it came through, and they the slots
        assert not named_segments()
        assert shared_memory(os.getpid()) <= before


def failure(dataset: Dataset, check: Callable[[int, Batch], None]) -> BaseException:
    """What an iteration fails with, in the end; every batch before is checked."""
    batches = enumerate(dataset)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            number, batch = next(batches)
        except Exception as error:
            return error
        check(number, batch)
    raise AssertionError("a minute has passed without the error that was due")


def starts(batch: Batch) -> list[int]:
    return corners(batch["field"], WHOLE)[:, 0].tolist()


def run(folder: Path, seconds: float, seed: int, at_least: int = 0) -> Counter[str]:
    """Inject faults until the time is over and there were enough of them."""
    soak = Soak(folder, seed)
    before = shared_memory(os.getpid())
    deadline = time.monotonic() + seconds
    others = [
        soak.breaking_connections,
        soak.fail_in_transform,
        soak.leave_chunks_out,
        soak.corrupt_a_chunk,
        soak.slow_store,
        soak.kill_the_last,
        soak.end_the_trainer,
    ]
    for number in itertools.count():
        if time.monotonic() > deadline and soak.faults.total() >= at_least:
            return soak.faults
        others[number % len(others)]()
        if number % 2:
            soak.kill_loaders(soak.random.randrange(3, 7))
        soak.nothing_is_left(before)
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Inject random faults into real runs, and check what they served and left behind.",
        epilog="example: python -m tests.soak --minutes 30",
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(np.random.default_rng().integers(1 << 30)))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        faults = run(Path(folder), 60 * options.minutes, options.seed)
    for name, count in sorted(faults.items()):
        print(f"{count:6}  {name}")
    print(f"{faults.total():6}  faults tried and survived")


if __name__ == "__main__":
    main()
