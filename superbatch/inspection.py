"""``superbatch inspect``: what loading from a store costs, before training begins."""

from __future__ import annotations

import argparse
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = """\
examples:
  superbatch inspect archive.zarr --array temperature --window time=12,y=64,x=64
      Chunks, codec, what one sample costs, decoding speed, the settings and what to expect of them.

  superbatch inspect archive.zarr --window time=2,y=128,x=128 --memory 4GB --plot windows.png --json
      The settings that fit into 4 GB; a picture of how windows lie in chunks; everything as JSON.

  superbatch inspect archive.zarr --window time=12,y=64,x=64 --sequences 64 --plot-shuffle shuffle.png
      How well twice the sequences mix; a picture of it beside a true shuffle.
"""

# Decoding is measured on real chunks for about this long.
_SECONDS = 2.0
# Decoding slower than this on one core is worth a word, however busy the machine: zstd gives about
# 1 GB/s, bz2 and lzma 10 to 50 MB/s.
_SLOW = 0.1e9
# Where random access decodes so many times what it uses, chunks are called hostile.
_HOSTILE = 50


@dataclass
class Inspection:
    """What was found.

    Attributes
    ----------
    facts : dict
        Of the store and the windows, and what was measured.
    settings : dict
        ``samples``, ``sequences``, ``chunks_per_sequence``.
    expected : dict
        Fresh samples a second, memory.
    quality : Quality
    warnings : list of str
    """

    facts: dict[str, Any]
    settings: dict[str, Any]
    expected: dict[str, Any]
    quality: Any
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "facts": self.facts,
            "settings": self.settings,
            "expected": self.expected,
            "quality": self.quality.as_dict(),
            "warnings": self.warnings,
        }

    def __str__(self) -> str:
        lines = []
        for title, entries in (
            ("store", self.facts),
            ("settings", self.settings),
            ("to expect", self.expected),
        ):
            lines.append(title)
            lines += [f"  {name:<34} {_spell(name, value)}" for name, value in entries.items()]
        lines += ["shuffle", *(f"  {line}" for line in str(self.quality).splitlines())]
        lines += [f"note: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``superbatch inspect`` to a parser."""
    parser.add_argument("store", metavar="STORE", help="a Zarr store: a path or a URL")
    parser.add_argument("--array", metavar="NAME", help="the array in it (default: the only one)")
    parser.add_argument(
        "--window",
        metavar="DIM=N,...",
        required=True,
        help="the length of a sample along each dimension, such as time=12,y=64,x=64",
    )
    parser.add_argument("--samples", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--sequences", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--chunks", type=int, default=3, metavar="N", help="per sequence; default: %(default)s"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--turnover", type=float, default=1.0, help="share of sequences replaced; default: 1"
    )
    parser.add_argument("--memory", metavar="SIZE", help="fit the settings into it, such as 8GB")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--plot", metavar="PNG", help="draw how windows lie in chunks")
    parser.add_argument("--plot-shuffle", metavar="PNG", help="draw how well samples are shuffled")


def run(arguments: argparse.Namespace) -> int:
    """Inspect a store; return the exit status."""
    from superbatch.demo.own import open_array, parse_window

    array, _ = open_array(arguments.store, arguments.array)
    found, source = inspect(
        array,
        parse_window(arguments.window),
        batch_size=arguments.batch_size,
        samples=arguments.samples,
        sequences=arguments.sequences,
        chunks_per_sequence=arguments.chunks,
        turnover=arguments.turnover,
        memory=arguments.memory,
    )
    if arguments.plot:
        draw(source, Path(arguments.plot))
    if arguments.plot_shuffle:
        found.quality.plot(arguments.plot_shuffle)
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else found)
    return 0


def inspect(array: Any, extents: dict[str, int], batch_size: int = 32, **settings: Any) -> Any:
    """Look at one array and how windows of it would be loaded; a few chunks are read.

    Parameters
    ----------
    array : DataArray or zarr.Array
    extents : dict of str to int
        The window.
    batch_size : int
    **settings
        As ``ArchiveSource`` takes them.

    Returns
    -------
    (Inspection, ArchiveSource)
    """
    import superbatch as sb
    from superbatch.arguments import usable_cores
    from superbatch.correlation import estimate_correlation
    from superbatch.quality import of_plan
    from superbatch.source import Settings

    named: dict[str, Any] = dict(extents)
    source = sb.ArchiveSource({"array": sb.Window(array, **named)}, **settings)
    cores = usable_cores()
    known = source.describe(1, cores)
    stored = source.grid.arrays[0]
    feed = source.bind(Settings(batch_size, 0, 0, 1, True, 1, cores))
    sample_bytes = known["sample_bytes"]
    touched = _touched(source)
    speed, measured = _decoding(feed, cores)
    plan = feed.plan.superbatch(0, 1)
    boxes = [found[0] for found in feed.cutter.boxes(plan.sequences)]
    decoded = sum(stored.decoded_bytes(box) for box in boxes)
    rate = len(plan.starts) / (decoded / speed) if speed and decoded else math.inf
    facts = {
        "shape": dict(zip(stored.dims, stored.shape, strict=True)),
        "chunks": {
            d: c.size or "irregular" for d, c in zip(stored.dims, stored.chunks, strict=True)
        },
        **{k: v for k, v in stored.describe().items() if k in ("path", "codecs", "pipeline")},
        "dtype": f"{stored.raw_dtype} stored, {stored.dtype} in a sample",
        "chunk_bytes": math.prod(min(c.size or c.length, c.length) for c in stored.chunks)
        * stored.raw_dtype.itemsize,
        "sample_bytes": sample_bytes,
        "random_access_bytes": touched,
        "windows": known["windows"],
        "ruled_out": known["ruled_out"] or "none",
        "decoding_bytes_per_second": speed,
        "measured_on_bytes": measured,
    }
    expected = {
        "fresh_samples_per_second": rate,
        "random_access_samples_per_second": speed / touched if touched else math.inf,
        "decoded_bytes_per_sample": decoded / len(plan.starts),
        "memory_bytes": known["memory_bytes"]["total"],
        "slots_bytes": known["memory_bytes"]["slots"],
        "sequences_bytes": known["memory_bytes"]["sequences"],
    }
    chosen = {
        "samples": known["samples"],
        "sequences": known["sequences"],
        "chunks_per_sequence": settings.get("chunks_per_sequence", 3),
        "batch_size": batch_size,
    }
    warnings = _warnings(stored, sample_bytes, touched, speed / cores, extents)
    warnings += _hidden(array)
    quality = of_plan(feed.plan, correlation=estimate_correlation(source))
    return Inspection(facts, chosen, expected, quality, warnings), source


def draw(source: Any, path: Path) -> None:
    """Draw how a superbatch's windows lie in the chunks, along the first one or two dimensions."""
    from superbatch.inspection_plot import plot

    plot(source, path)


def _touched(source: Any) -> float:
    """Decoded bytes that reading one window by itself costs, on average over drawn windows."""
    from superbatch.source import Settings

    feed = source.bind(Settings(1, 0, 0, 1, True, 1, 1))
    plan, cutter = feed.plan.superbatch(0, 1), feed.cutter
    (cut,), stored = cutter.cuts, cutter.arrays[0]
    anchors = cutter.anchors.of(plan.starts[:256])
    total = 0
    for anchor in anchors:
        box = []
        for dim, lookup in enumerate(cut.lookups):
            low = 0 if lookup is None else int(lookup.at(anchor[None])[0]) + cut.offset[dim]
            box.append((low, low + cut.size[dim]))
        total += stored.decoded_bytes(tuple(box))
    return total / len(anchors)


def _decoding(feed: Any, cores: int) -> tuple[float, int]:
    """Bytes decoded in a second by all cores, on sequences that a superbatch would load."""
    stored = feed.cutter.arrays[0]
    plan = feed.plan.superbatch(0, 1)
    boxes = [found[0] for found in feed.cutter.boxes(plan.sequences)]
    if not sum(stored.decoded_bytes(box) for box in boxes):
        return 0.0, 0
    warm: dict[tuple[int, ...], list[np.ndarray[Any, Any]]] = {}

    def read(number: int, seconds: float, most: int) -> tuple[int, int]:
        """Boxes and bytes that one thread reads, one after the other, into memory that is warm."""
        deadline, done, count = time.perf_counter() + seconds, 0, 0
        for box in boxes[number::cores][:most]:
            shape = tuple(b - a for a, b in box)
            free = warm.setdefault((number, *shape), [])
            out = free.pop() if free else np.zeros(shape, stored.raw_dtype)
            stored.read(box, out)
            free.append(out)
            done, count = done + stored.decoded_bytes(box), count + 1
            if time.perf_counter() > deadline:
                break
        return count, done

    with ThreadPoolExecutor(cores) as pool:
        # The first time, chunks come from the disk or the network; what is measured is decoding.
        first = list(pool.map(lambda n: read(n, _SECONDS, len(boxes)), range(cores)))
        begin = time.perf_counter()
        again = list(pool.map(lambda n: read(n, _SECONDS, first[n][0]), range(cores)))
        seconds = time.perf_counter() - begin
    done = sum(decoded for _, decoded in again)
    return done / seconds, done


def _warnings(
    stored: Any, sample: int, touched: float, speed: float, extents: dict[str, int]
) -> list[str]:
    """What is worth a word."""
    found = []
    if touched > _HOSTILE * sample:
        better = {
            dim: min(max(1, extents.get(dim, length)), length)
            for dim, length in zip(stored.dims, stored.shape, strict=True)
        }
        found.append(
            f"random access decodes {touched / sample:.0f} times what it uses; superbatches share a chunk among many "
            f"samples, and chunks of about {better} would help every reader"
        )
    if stored.raw_dtype == np.float64:
        found.append("values are float64: float32 halves what is read and kept, if its digits do")
    elif stored.dtype == np.float64:
        found.append(
            "values become float64 by decoding: dtype='float32' in the Window halves a sample"
        )
    codecs = stored.describe().get("codecs")
    if codecs == [] or (codecs and all("Bytes" in str(c) for c in codecs)):
        found.append("chunks are not compressed: zstd often halves what has to be read")
    if 0 < speed < _SLOW:
        found.append(
            f"decoding gives {speed / 1e6:.0f} MB/s on a core: zstd or lz4 would give 3 to 10 times that"
        )
    if stored.describe().get("path") in ("dask", "xarray"):
        found.append(
            "the array is read through xarray or Dask, at about half the speed: open it with "
            "xr.open_zarr(..., chunks=None) and select before anything else is computed"
        )
    return found


def _hidden(array: Any) -> list[str]:
    """Coordinates that are Dask arrays without being asked for: each selection may compute them."""
    coords = getattr(array, "coords", {})
    return [
        f"the coordinate {name!r} is a Dask array of {_size(coord.nbytes)}, which is computed again for "
        f"every selection that touches it: array.drop_vars({name!r}), or assign_coords({name}=array[{name!r}].load())"
        for name, coord in coords.items()
        if coord.chunks is not None
    ]


def _spell(name: str, value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "not measured: the chunks are absent"
    if name.endswith("bytes") or name.endswith("bytes_per_sample"):
        return _size(value)
    if name == "decoding_bytes_per_second":
        return f"{_size(value)}/s on all cores"
    if isinstance(value, float):
        return f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return str(value)


def _size(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} bytes"
