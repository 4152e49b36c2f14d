"""Looking at an array before training: what windows of it cost, and what to expect."""

from __future__ import annotations

import math
from typing import Any

from superbatch.inspection import advice
from superbatch.inspection.measure import measure
from superbatch.inspection.report import Inspection

__all__ = ["Inspection", "inspect"]

# The correlation within a sequence is estimated on sequences of about this much in all.
_ESTIMATE_BYTES = 1e9
_ESTIMATE_SEQUENCES = (8, 64)


def inspect(array: Any, extents: dict[str, int], batch_size: int = 32, **settings: Any) -> Any:
    """Look at one array and how windows of it would be loaded; some chunks are read.

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

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> field = xr.DataArray(np.zeros((400, 8), "f4"), dims=("time", "x")).chunk(time=20)
    >>> found, source = inspect(field, {"time": 4}, samples=64, sequences=4)
    >>> found.facts["windows"], found.facts["sample_bytes"]
    (397, 128)
    """
    import superbatch as sb
    from superbatch.arguments import usable_cores
    from superbatch.correlation import correlation_and_error
    from superbatch.memory import available
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
    plan, loaded = _full(feed.plan)
    speed = measure(feed, plan, cores)
    boxes = [found[0] for found in feed.cutter.boxes(loaded)]
    decoded = sum(stored.decoded_bytes(box) for box in boxes) / len(plan.starts)
    chunk = stored.decoded_bytes(tuple((0, min(1, n)) for n in stored.shape))
    told = stored.describe()
    each = max(1, decoded * len(plan.starts) / max(1, len(boxes)))
    some = min(max(int(_ESTIMATE_BYTES / each), _ESTIMATE_SEQUENCES[0]), _ESTIMATE_SEQUENCES[1])
    correlation, error = correlation_and_error(source, sequences=some)
    rate = None
    if speed.decoding and speed.cutting:
        rate = 1 / (decoded / speed.decoding + 1 / speed.cutting)
    facts = {
        "shape": dict(zip(stored.dims, stored.shape, strict=True)),
        "chunks": {
            d: c.size or "irregular" for d, c in zip(stored.dims, stored.chunks, strict=True)
        },
        **{k: v for k, v in told.items() if k in ("path", "codecs", "pipeline")},
        **({"stored_chunk": list(told["chunks"])} if "chunks" in told else {}),
        "chunk_bytes": chunk or _memory_chunk(stored),
        "dtype": f"{stored.raw_dtype} stored, {stored.dtype} in a sample",
        "sample_bytes": sample_bytes,
        "random_access_bytes": touched,
        "windows": known["windows"],
        "ruled_out": known["ruled_out"] or "none",
        "first_read_bytes_per_second": speed.first,
        "decoding_bytes_per_second": speed.decoding,
        "measured_on": speed.bytes,
        "correlation_in_a_sequence": _with_error(correlation, error),
    }
    expected = {
        "fresh_samples_per_second": rate,
        "random_access_samples_per_second": speed.decoding / touched
        if speed.decoding and touched
        else None,
        "decoded_bytes_per_sample": decoded,
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
    warnings = [
        *advice.of_chunks(stored, chunk, sample_bytes, touched, extents),
        *advice.of_speed(stored, chunk, speed, cores),
        *advice.of_settings(chosen, known["windows"], plan, decoded, sample_bytes),
        *advice.of_memory(known["memory_bytes"]["total"], available()),
        *advice.of_coordinates(array),
    ]
    quality = of_plan(feed.plan, correlation=correlation)
    return Inspection(facts, chosen, expected, quality, warnings), source


def _full(plan: Any) -> tuple[Any, Any]:
    """A superbatch of full size, and the sequences that are loaded for it: those not in the one before."""
    last = math.inf if plan.epoch_superbatches is None else plan.epoch_superbatches - 1
    index = int(min(plan.small + 1, last))
    full = plan.superbatch(0, index)
    before = plan.superbatch(0, index - 1).sequences.tolist() if index else []
    new = [n for n, item in enumerate(full.sequences.tolist()) if item not in before]
    return full, full.sequences[new]


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


def _memory_chunk(stored: Any) -> int:
    """Bytes of a chunk of values that are not decoded."""
    lengths = [min(c.size or c.length, c.length) for c in stored.chunks]
    return int(math.prod(lengths) * stored.raw_dtype.itemsize)


def _with_error(correlation: float | None, error: float | None) -> str:
    if correlation is None:
        return "cannot be told"
    return f"{correlation:.2f}" + ("" if error is None else f" ± {error:.2f}")
