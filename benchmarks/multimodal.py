"""What it costs to add forecasts and sites to satellite samples, on grids and time steps of their own.

``python -m benchmarks.multimodal`` makes two archives (about 2 GB, cached) and measures fresh samples a second
of each kind of data alone and of all together. The anchors are the same every time: those of a clock, an array
of hardly any bytes in the satellite's chunks. The costs are to add up, not more: 1 means that all together
take as long as each after the other.

- **w2**: 19 satellite images of 12 channels around a random pixel, 14 hours of a forecast's 10 variables
  around it, and the series of 940 sites.
- **w3**: at one of 940 sites, 11 images of 7 channels, 17 hours of two forecasts of 10 channels,
  and the site's own 19 half-hourly values.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numcodecs import zstd
from zarr.codecs import ZstdCodec

import superbatch as sb
from benchmarks import floor, machine, stores
from benchmarks.workloads import Array

DAYS = 10
SITES = 940
VERSION = 1

Windows = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One archive and what a sample of it is.

    Attributes
    ----------
    arrays : tuple of Array
        What is stored.
    steps : dict of str to (str, int)
        Of each dimension with times: unit of its numbers and the distance between them.
    kinds : dict of str to list of str
        Which modalities are added together.
    """

    name: str
    arrays: tuple[Array, ...]
    steps: dict[str, tuple[str, int]]
    kinds: dict[str, list[str]]
    windows: Callable[[xr.Dataset], Windows]
    sites: bool
    batch_size: int
    samples: int
    sequences: int


def _array(
    name: str, dims: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str
) -> Array:
    return Array(name, tuple(dims.split()), shape, chunks, dtype, {})


def w2(days: int = DAYS) -> Case:
    """A random pixel: images, ten variables of one forecast archive, series of all sites."""
    images, runs = days * 288, days * 8
    variables = [f"nwp{k}" for k in range(10)]

    def windows(data: xr.Dataset) -> Windows:
        hours = slice("0h", "13h")
        return {
            "clock": sb.Window(data.clock, time=1, y=1, x=1),
            "sat": sb.Window(data.sat, time=19, y=32, x=32),
            **{
                v: sb.Forecast(
                    data[v], init_time="init", step="step", time=hours, delay="3h", y=32, x=32
                )
                for v in variables
            },
            "pv": sb.Window(data.pv, time=19),
        }

    return Case(
        "w2",
        (
            _array("clock", "time y x", (images, 96, 96), (12, 96, 96), "int8"),
            _array("sat", "time channel y x", (images, 12, 96, 96), (12, 12, 96, 96), "int16"),
            *(
                _array(v, "init step ny nx", (runs, 20, 96, 96), (2, 20, 96, 96), "int16")
                for v in variables
            ),
            _array("pv", "time site", (images, SITES), (120, SITES), "float32"),
        ),
        {"time": ("minutes", 5), "init": ("hours", 3), "step": ("hours", 1)},
        {"images": ["sat"], "forecasts": variables, "series": ["pv"]},
        windows,
        sites=False,
        batch_size=32,
        samples=512,
        sequences=8,
    )


def w3(days: int = DAYS) -> Case:
    """A site: images, two forecast archives, its own series."""
    images = days * 288

    def forecast(data: xr.DataArray, run: str, step: str) -> Any:
        return sb.Forecast(
            data, init_time=run, step=step, time=slice("-2h", "14h"), delay="3h", y=24, x=24
        )

    def windows(data: xr.Dataset) -> Windows:
        return {
            "clock": sb.Window(data.clock, time=1),
            "sat": sb.Window(data.sat, time=11, y=24, x=24),
            "nwp_a": forecast(data.nwp_a, "init_a", "step_a"),
            "nwp_b": forecast(data.nwp_b, "init_b", "step_b"),
            "generation": sb.Window(data.generation, half=19, site=sb.HERE),
        }

    a, b = (days * 8, 24, 10, 72, 72), (days * 4, 30, 10, 72, 72)
    return Case(
        "w3",
        (
            _array("clock", "time", (images,), (12,), "int8"),
            _array("sat", "time channel y x", (images, 7, 96, 96), (12, 7, 96, 96), "float32"),
            _array("nwp_a", "init_a step_a c ay ax", a, (1, *a[1:]), "float32"),
            _array("nwp_b", "init_b step_b c by bx", b, (1, *b[1:]), "float32"),
            _array("generation", "half site", (days * 48, SITES), (48, SITES), "float32"),
        ),
        {
            "time": ("minutes", 5),
            "half": ("minutes", 30),
            "init_a": ("hours", 3),
            "step_a": ("hours", 1),
            "init_b": ("hours", 6),
            "step_b": ("hours", 1),
        },
        {"images": ["sat"], "forecasts": ["nwp_a", "nwp_b"], "series": ["generation"]},
        windows,
        sites=True,
        batch_size=8,
        samples=512,
        sequences=16,
    )


def make(case: Case, cache: Path) -> Path:
    """Path of the archive, generated where it is not there yet."""
    path = cache / f"multimodal-{case.name}-{case.arrays[0].shape[0] // 288}-v{VERSION}.zarr"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    part = cache / f".multimodal-{uuid.uuid4().hex[:8]}.part"
    try:
        group = zarr.create_group(part, zarr_format=3)
        sizes: dict[str, int] = {}
        for array in case.arrays:
            target = group.create_array(
                array.name,
                shape=array.shape,
                chunks=array.chunks,
                dtype=array.dtype,
                compressors=ZstdCodec(level=0),
                fill_value=0,
                dimension_names=array.dims,
            )
            stores._fill(target, array, 2)
            sizes |= zip(array.dims, array.shape, strict=True)
        for dim, size in sizes.items():
            unit, step = case.steps.get(dim, ("", 1))
            values = step * np.arange(size)
            # Other grids have another cell size, and begin elsewhere: they reach over on each side.
            if dim in ("ny", "nx", "ay", "ax", "by", "bx"):
                values = np.linspace(-10.0, 106.0, size)
            about = {}
            if dim in case.steps:
                about = {"units": unit if "step" in dim else f"{unit} since 2020-01-01"}
            target = group.create_array(
                dim,
                shape=(size,),
                chunks=(size,),
                dtype=values.dtype,
                dimension_names=(dim,),
                attributes=about,
            )
            target[:] = values
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def open_windows(case: Case, path: Path) -> Windows:
    """The windows of all modalities."""
    data = xr.open_zarr(path, chunks=None, consolidated=False, decode_timedelta=True)
    # Each forecast names the axes of its own grid y and x, as the anchors do.
    renamed = {
        name: array.rename(
            {d: d[-1] for d in array.dims if str(d) in ("ny", "nx", "ay", "ax", "by", "bx")}
        )
        for name, array in data.data_vars.items()
    }
    return case.windows(_Arrays(renamed))  # type: ignore[arg-type]


class _Arrays(dict[str, Any]):
    """Arrays by name that need not share their coordinates."""

    __getattr__ = dict.__getitem__


def places() -> xr.Dataset:
    """Where the sites are, so that windows of 24 cells fit on every grid."""
    rng = np.random.default_rng(0)
    return xr.Dataset(
        {d: ("site", rng.uniform(30, 66, SITES)) for d in "yx"}, {"site": np.arange(SITES)}
    )


@dataclass
class Turn:
    """One measurement of one selection of modalities."""

    seconds: float  # for a sample
    decoded: float  # bytes for a sample
    plan: float  # seconds for a superbatch


def measure(case: Case, windows: Windows, names: list[str], superbatches: int) -> Turn:
    """Fresh samples of the clock and some modalities, one pass, read as fast as they come."""
    source = sb.ArchiveSource(
        {"clock": windows["clock"], **{n: windows[n] for n in names}},
        sites=places() if case.sites else None,
        samples=case.samples,
        sequences=case.sequences,
        chunks_per_sequence=3,
    )
    with sb.SuperbatchDataset(source, case.batch_size, replays=1) as dataset:
        batches = iter(dataset)
        each = case.samples // case.batch_size
        for _ in range(
            3 * each
        ):  # the first ones are short, and memory is touched for the first time
            next(batches)
        before, began = dataset.stats(), time.perf_counter()
        for _ in range(superbatches * each):
            next(batches)
        seconds, after = time.perf_counter() - began, dataset.stats()
    samples = superbatches * case.samples
    return Turn(
        seconds / samples,
        (after.decoded_bytes - before.decoded_bytes) / samples,
        (after.plan_seconds - before.plan_seconds) / superbatches,
    )


def decode_speed(case: Case, path: Path, threads: int, chunks: int = 40) -> float:
    """Bytes a second that all cores decompress of this archive's large arrays."""
    floor.keep_freed_memory()
    work: list[tuple[bytes, int]] = []
    for array in case.arrays:
        if array.chunk_bytes > 1 << 18:
            grid = [-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)]
            found = floor.encoded_chunks(
                path, array, [(k, *[0] * (len(grid) - 1)) for k in range(min(grid[0], chunks))]
            )
            work += [(data, array.chunk_bytes) for data in found]
    buffers = [np.zeros(max(n for _, n in work), np.uint8) for _ in range(threads)]

    def drain(queue: Any, buffer: np.ndarray) -> None:
        for data, size in queue:
            zstd.decompress(data, buffer[:size])

    speeds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            queue, began = iter(work), time.perf_counter()
            list(pool.map(drain, [queue] * threads, buffers))
            speeds.append(sum(n for _, n in work) / (time.perf_counter() - began))
    return statistics.median(speeds[1:])


def report(case: Case, path: Path, rounds: int, superbatches: int, cores: int) -> None:
    """Measure one case in rounds and print its table."""
    windows = open_windows(case, path)
    kinds = {**case.kinds, "all together": [n for names in case.kinds.values() for n in names]}
    turns: dict[str, list[Turn]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind, names in kinds.items():
            turns[kind].append(measure(case, windows, names, superbatches))
            print(
                f"  {case.name} round {number + 1}: {kind} {1 / turns[kind][-1].seconds:,.0f} samples/s",
                file=sys.stderr,
                flush=True,
            )
    shares = [
        turns["all together"][k].seconds / sum(turns[kind][k].seconds for kind in case.kinds)
        for k in range(rounds)
    ]
    speed = decode_speed(case, path, cores)
    print(f"\n## {case.name}: batches of {case.batch_size}\n")
    print(
        "| modalities | fresh samples/s | lowest–highest | MB decoded a sample | of the floor | plan |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for kind, taken in turns.items():
        rates = [1 / t.seconds for t in taken]
        rate, decoded = statistics.median(rates), statistics.median(t.decoded for t in taken)
        print(
            f"| {kind} | {rate:,.0f} | {min(rates):,.0f}–{max(rates):,.0f} | {decoded / 1e6:.2f} "
            f"| {rate * decoded / speed:.2f} | {1e3 * statistics.median(t.plan for t in taken):.1f} ms |"
        )
    print(
        f"\nAll together take {statistics.median(shares):.2f} × the sum of each alone "
        f"({min(shares):.2f}–{max(shares):.2f}, at most 1.3 wanted). The floor decodes {speed / 1e9:.2f} GB/s."
    )


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multimodal",
        description="What forecasts and sites cost when they are added to satellite samples.",
        epilog="example: python -m benchmarks.multimodal w3 --rounds 5",
    )
    cases = {"w2": w2, "w3": w3}
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(cases)}; default: all"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--superbatches", type=int, default=6, help="in each turn; default 6")
    parser.add_argument(
        "--days", type=int, default=DAYS, help=f"length of the archives; default {DAYS}"
    )
    parser.add_argument("--cache", type=Path, default=None, help="where archives are kept")
    options = parser.parse_args(arguments)
    unknown = [n for n in options.names if n not in cases]
    if unknown:
        print(f"no case named {unknown[0]!r}: choose from {', '.join(cases)}")
        return 2
    cores = machine.use_cores(2)
    about = machine.describe()
    print(
        f"{about['cpu']}, {cores} of {about['cores']} cores, {about['system']}, Python {about['python']}; "
        f"medians of {options.rounds} rounds"
    )
    for name in options.names or cases:
        case = cases[name](options.days)
        path = make(case, options.cache or stores.cache_dir())
        report(case, path, options.rounds, options.superbatches, cores)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
