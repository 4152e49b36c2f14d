"""How long planning takes, and that it does not depend on the length of the archive.

``python -m benchmarks.plan`` plans superbatches of 4,096 samples of workload W1, and of the same archive
with two million chunks along time, for both kinds of coverage. No data is read, no store is made.
Then it makes a source of satellite, forecast and PV series for a year of 5-minute stamps and a thousand sites
whose series have gaps, and plans its superbatches, down to the chunks of each array.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

import superbatch as sb
from superbatch.archive.chunks import Chunks
from superbatch.archive.plan import Plan
from superbatch.archive.sequences import Axis
from superbatch.source import Settings

SAMPLES, SEQUENCES, BATCH = 4096, 32, 8
W1_CHUNKS, MANY_CHUNKS = 100, 2_000_000


def make(chunks: int, coverage: str) -> Plan:
    """The plan of W1, with so many chunks along time."""
    axes = [
        Axis("time", Chunks.regular(36 * chunks, 36), 2, 3),
        Axis("y", Chunks.regular(704, 704), 128, 1),
        Axis("x", Chunks.regular(548, 548), 128, 1),
    ]
    return Plan(
        axes,
        samples=SAMPLES,
        sequences=SEQUENCES,
        batch_size=BATCH,
        coverage=coverage,
        first=3,
    )


def milliseconds(function: Callable[[], object]) -> float:
    """Time that a core spends on it: planning is one thread's work, and others may keep the machine busy."""
    begin = time.thread_time()
    function()
    return (time.thread_time() - begin) * 1e3


def measure(coverage: str, repeats: int) -> dict[int, tuple[float, float, int]]:
    """For each number of chunks: making the plan and planning a superbatch, in ms; bytes of the plan.

    The two lengths take turns, so that a busy machine slows both alike.
    """
    lengths = (W1_CHUNKS, MANY_CHUNKS)
    plans = {chunks: make(chunks, coverage) for chunks in lengths}
    making: dict[int, list[float]] = {chunks: [] for chunks in lengths}
    planning: dict[int, list[float]] = {chunks: [] for chunks in lengths}
    for number in range(1, repeats + 1):
        for chunks, plan in plans.items():
            making[chunks].append(milliseconds(partial(make, chunks, coverage)))
            planning[chunks].append(milliseconds(partial(plan.superbatch, 0, number)))
    return {
        chunks: (
            statistics.median(making[chunks]),
            statistics.median(planning[chunks]),
            len(pickle.dumps(plans[chunks])),
        )
        for chunks in lengths
    }


def year(days: int = 365, sites: int = 1000) -> dict[str, Any]:
    """A year of images, forecast runs and site series with gaps; only the series hold values."""
    rng = np.random.default_rng(0)
    time = np.datetime64("2021-01-01", "ns") + np.arange(days * 288) * np.timedelta64(5, "m")
    runs = np.datetime64("2020-12-31", "ns") + np.arange(days * 8 + 8) * np.timedelta64(3, "h")
    sat = xr.DataArray(
        da.zeros((len(time), 704, 548), chunks=(36, 704, 548), dtype="int16"),
        {"time": time, "y": np.arange(704.0), "x": np.arange(548.0)},
        ("time", "y", "x"),
    )
    nwp = xr.DataArray(
        da.zeros((len(runs), 49, 70, 54), chunks=(1, 49, 70, 54), dtype="float32"),
        {
            "init_time": runs,
            "step": np.arange(49),
            "y": np.arange(5.0, 704, 10),
            "x": np.arange(5.0, 540, 10),
        },
        ("init_time", "step", "y", "x"),
    )
    values = rng.random((len(time), sites), dtype=np.float32)
    for site, begin, length in zip(
        rng.integers(sites, size=3 * sites),
        rng.integers(len(time), size=3 * sites),
        rng.integers(1, 600, size=3 * sites),
        strict=True,
    ):
        values[begin : begin + length, site] = np.nan
    names = np.arange(sites)
    pv = xr.DataArray(values, {"time": time, "site": names}, ("time", "site"))
    places = {
        "x": ("site", rng.uniform(50, 490, sites)),
        "y": ("site", rng.uniform(50, 650, sites)),
    }
    return {
        "sat": sb.Window(sat, time=slice("-30min", "0min"), y=64, x=64),
        "nwp": sb.Forecast(nwp, time=slice("-1h", "3h"), delay="3h", y=8, x=8),
        "pv": sb.Window(pv, time=slice("-30min", "2h"), site=sb.HERE),
        "sites": xr.Dataset(places, coords={"site": names}),
    }


def measure_sites(repeats: int, days: int = 365, sites: int = 1000) -> dict[str, float]:
    """Making the source, planning a superbatch and finding its chunks, in ms; and how many anchors there are."""
    given = year(days, sites)
    places = given.pop("sites")
    making, planning, boxes = [], [], []
    for _ in range(min(repeats, 5)):
        begin = time.thread_time()
        source = sb.ArchiveSource(given, sites=places, samples=SAMPLES, sequences=SEQUENCES)
        making.append((time.thread_time() - begin) * 1e3)
    feed = source.bind(Settings(BATCH, 0, 0, 1, True, 1, 1))
    for number in range(1, repeats + 1):
        begin = time.thread_time()
        planned = feed.plan.superbatch(0, number)
        middle = time.thread_time()
        feed.cutter.boxes(planned.sequences)
        planning.append((middle - begin) * 1e3)
        boxes.append((time.thread_time() - middle) * 1e3)
    return {
        "anchors": source.describe()["windows"],
        "making": statistics.median(making),
        "planning": statistics.median(planning),
        "boxes": statistics.median(boxes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    print(
        f"{'coverage':10}{'chunks':>12}{'make the plan':>16}{'4,096 samples':>16}{'plan in bytes':>16}"
    )
    found = {coverage: measure(coverage, repeats) for coverage in ("random", "once")}
    for coverage, by_length in found.items():
        for chunks, (making, planning, size) in by_length.items():
            print(f"{coverage:10}{chunks:>12,}{making:>13.2f} ms{planning:>13.2f} ms{size:>16,}")
        ratio = by_length[MANY_CHUNKS][1] / by_length[W1_CHUNKS][1]
        print(f"{'':10}{'ratio':>12}{'':16}{ratio:>15.2f}x")
    ratio = found["once"][W1_CHUNKS][1] / found["random"][W1_CHUNKS][1]
    print(f'"once" takes {ratio:.2f} x the planning of "random" on W1')
    sites = measure_sites(min(repeats, 50))
    print(
        f"a year, 1,000 sites, {sites['anchors']:,} anchors: {sites['making']:.0f} ms to make the source, "
        f"{sites['planning']:.1f} + {sites['boxes']:.1f} ms to plan 4,096 samples and find their chunks"
    )


if __name__ == "__main__":
    main()
