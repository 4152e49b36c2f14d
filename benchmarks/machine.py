"""The machine: which one, how many of its cores are used, and what processes take of it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import psutil

PACKAGES = (
    "superbatch",
    "numpy",
    "dask",
    "distributed",
    "xarray",
    "zarr",
    "zarrs",
    "numcodecs",
    "torch",
    "tensorstore",
    "xbatcher",
    "scdataset",
)


def use_cores(count: int) -> int:
    """Keep this process, and all that it starts, on this many cores; returns how many there are.

    Libraries that size their thread pools by the number of cores are told the number as well.
    """
    allowed = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, allowed)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, str(len(allowed)))
    return len(allowed)


def describe() -> dict[str, object]:
    """What a reader needs to know of the machine."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cpu": model,
        "cores_used": len(os.sched_getaffinity(0)),
        "cores": os.cpu_count(),
        "memory_gigabytes": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Versions of the packages that take part; those that are missing are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def tree(pid: int | None = None) -> list[psutil.Process]:
    """A process and all that it started, directly or not."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int | None = None) -> float:
    """User and system time of a process tree, children that have ended included."""
    total = 0.0
    for process in tree(pid):
        try:
            t = process.cpu_times()
        except psutil.Error:
            continue
        total += t.user + t.system + t.children_user + t.children_system
    return total


def pss_bytes(pid: int | None = None) -> int:
    """Memory of a process tree, shared pages counted once (proportional set size)."""
    total = 0
    for process in tree(pid):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended in the meantime
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


class PeakMemory:
    """The largest proportional set size of this process's tree while the context is open.

    Reading it takes locks in the kernel, so it is never open while throughput is measured.
    """

    def __init__(self, interval: float = 0.05) -> None:
        self.interval = interval
        self.before = 0
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self.peak = max(self.peak, pss_bytes())

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = pss_bytes()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, pss_bytes())


@contextmanager
def stopwatch() -> Iterator[dict[str, float]]:
    """Wall seconds, and CPU seconds of the whole process tree, of what runs inside."""
    taken: dict[str, float] = {}
    cpu, start = cpu_seconds(), time.perf_counter()
    yield taken
    taken["seconds"] = time.perf_counter() - start
    taken["cpu_seconds"] = cpu_seconds() - cpu
