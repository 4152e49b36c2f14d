"""Memory stays within what was asked for."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import superbatch as sb
from tests.fields import write_plain


def private(pid: int) -> int:
    """Bytes of a process that it shares with nobody, slots left out: they are counted by themselves."""
    found, slot = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if not line[0].isupper():  # the first line of a mapping
            slot = "/dev/shm/" in line
        elif line.startswith("Private_") and not slot:
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's smaps")
@pytest.mark.parametrize(("turnover", "loaders"), [(1.0, 1), (0.5, 1), (1.0, 2)])
def test_loaders_and_slots_stay_within_memory(tmp_path, turnover, loaders) -> None:
    whole = np.random.default_rng(0).integers(0, 1000, (720, 352, 274)).astype("i2")
    array = write_plain(
        tmp_path / "field.zarr", whole, chunks=(36, 352, 274), dimension_names=("time", "y", "x")
    )
    limit = 900 * 10**6
    source = sb.ArchiveSource(
        {"field": sb.Window(array, time=2, y=64, x=64)}, memory="900MB", turnover=turnover
    )
    peak, stop = [0], threading.Event()
    with sb.SuperbatchDataset(source, 16, replays=1, loaders=loaders, timeout=60) as dataset:
        slots = dataset._receiver._slots.layout.size * (loaders + 1)
        batches = iter(dataset)
        next(batches)

        def watch() -> None:
            while not stop.wait(0.05):
                peak[0] = max(peak[0], sum(map(private, dataset._loaders.pids)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            while dataset.stats().superbatches < 8:
                next(batches)
        finally:
            stop.set()
            watcher.join(10)
    assert peak[0] + slots <= limit, (peak[0], slots)
    # And not by using next to nothing of it.
    assert peak[0] + slots > limit / 4, (peak[0], slots)
