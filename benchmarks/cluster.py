"""What a Dask cluster costs: CPU time of scheduler, workers and loader, for a task and for a GB.

``python -m benchmarks.cluster`` starts a scheduler and workers on this machine, in processes of their own. Two
runs: workload W1, whose chunks are decoded and whose windows travel; and many small sequences of an archive
without chunks, where there is little to do but schedule. CPU time does not depend on how many processes
share the cores, so that it holds where each has a machine of its own. `benchmarks/SCALE.md` is reckoned from it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

import superbatch as sb
from benchmarks import stores, workloads


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[tuple[str, int, list[int]]]:
    """A scheduler and workers of one thread each: address, and process ids."""
    environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "0"}
    quiet: dict[str, Any] = {"env": environment, "stderr": subprocess.DEVNULL}
    with contextlib.ExitStack() as stack:

        def start(*command: str, **options: Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], text=True, **quiet, **options
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        folder = Path(stack.enter_context(_folder()))
        file = folder / "scheduler.json"
        scheduler = start(
            "distributed.cli.dask_scheduler",
            *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(file)),
        )
        pids = [
            start(
                "distributed.cli.dask_worker",
                *("--scheduler-file", str(file), "--host", "127.0.0.1", "--no-nanny"),
                *("--nthreads", "1", "--no-dashboard", "--memory-limit", "0"),
                *("--local-directory", str(folder)),
            ).pid
            for _ in range(workers)
        ]
        deadline = time.monotonic() + 60
        while not file.exists():
            if time.monotonic() > deadline or scheduler.poll() is not None:
                raise RuntimeError("the scheduler did not start within 60 s")
            time.sleep(0.05)
        with Client(scheduler_file=str(file), set_as_default=False, timeout=60) as client:
            client.wait_for_workers(workers, timeout=60)
            address = str(client.scheduler.address)
        yield address, scheduler.pid, pids


def _folder() -> Any:
    import tempfile

    return tempfile.TemporaryDirectory()


def measure(
    source: sb.ArchiveSource, batch_size: int, superbatches: int, workers: int
) -> dict[str, float]:
    """Serve full superbatches from a cluster; rates, and CPU seconds of each role."""
    with cluster(workers) as (address, scheduler, pids):
        options: dict[str, Any] = {"replays": 1, "dask": address, "timeout": 120}
        with sb.SuperbatchDataset(source, batch_size, **options) as dataset:
            count = source.samples // batch_size
            batches = iter(dataset)
            for _ in itertools.islice(batches, 2 * count):  # past the small ones at the beginning
                pass
            before, began = dataset.stats(), time.perf_counter()
            cpu = _seconds([scheduler]), _seconds(pids), _seconds(dataset._loaders.pids)  # type: ignore[union-attr]
            for _ in itertools.islice(batches, superbatches * count):
                pass
            seconds, after = time.perf_counter() - began, dataset.stats()
            now = _seconds([scheduler]), _seconds(pids), _seconds(dataset._loaders.pids)  # type: ignore[union-attr]
    fresh = after.fresh - before.fresh
    return {
        "samples_per_second": fresh / seconds,
        "window_bytes": fresh * source.describe()["sample_bytes"],
        "decoded_bytes": after.decoded_bytes - before.decoded_bytes,
        "sequences": after.sequences - before.sequences,
        **{
            f"{role}_seconds": b - a
            for role, a, b in zip(("scheduler", "worker", "loader"), cpu, now, strict=True)
        },
    }


def _seconds(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(t.user + t.system for t in times)


def table(w1: dict[str, float], many: dict[str, float]) -> str:
    """Both runs, for people."""
    gigabytes = w1["window_bytes"] / 1e9
    rows = [
        ("W1, fresh samples a second, all on this machine", f"{w1['samples_per_second']:,.0f}"),
        (
            "worker, CPU seconds for a GB decoded",
            f"{1e9 * w1['worker_seconds'] / w1['decoded_bytes']:.2f}",
        ),
        ("loader, CPU seconds for a GB of windows", f"{w1['loader_seconds'] / gigabytes:.2f}"),
        (
            "scheduler, CPU seconds for a GB of windows",
            f"{w1['scheduler_seconds'] / gigabytes:.2f}",
        ),
        (
            "scheduler, CPU ms for a sequence of W1",
            f"{1e3 * w1['scheduler_seconds'] / w1['sequences']:.2f}",
        ),
        (
            "small sequences: a second",
            f"{many['samples_per_second'] * many['sequences'] / many['samples']:,.0f}",
        ),
        (
            "  scheduler, CPU ms for a sequence",
            f"{1e3 * many['scheduler_seconds'] / many['sequences']:.2f}",
        ),
        (
            "  loader, CPU ms for a sequence",
            f"{1e3 * many['loader_seconds'] / many['sequences']:.2f}",
        ),
        (
            "  worker, CPU ms for a sequence",
            f"{1e3 * many['worker_seconds'] / many['sequences']:.2f}",
        ),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>8}" for name, value in rows)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--cache", type=Path, help="where stores are kept")
    parser.add_argument("--workers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--superbatches", type=int, default=6, help="default: %(default)s")
    arguments = parser.parse_args()
    cache = arguments.cache or stores.cache_dir()
    w1 = workloads.WORKLOADS["w1"]()
    found = measure(
        w1.source(stores.make(w1, cache)), w1.batch_size, arguments.superbatches, arguments.workers
    )
    long = workloads.length(100)
    small = long.source(stores.make(long, cache)).replace(
        samples=2048, sequences=512, chunks_per_sequence=1
    )
    # nothing is read: a block of absent chunks is only filled
    many = measure(small, 8, arguments.superbatches, arguments.workers)
    many["samples"] = many["window_bytes"] / small.describe()["sample_bytes"]
    print(table(found, many))


if __name__ == "__main__":
    main()
