"""How fast the chunks of a store decode here, and samples are cut from them."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from superbatch.archive.patience import Loaded

# Decoding is measured on real chunks for about this long.
_SECONDS = 2.0
# Fewer bytes decode in a few milliseconds, in which starting threads counts for more than a codec:
# nothing is said of the speed then, unless it took this long.
_BYTES = 10e6
_LONG = 0.5
# Cut by a thread at a time; more than caches hold.
_CUT_BYTES = 256_000_000


@dataclass(frozen=True)
class Speed:
    """What was measured, on all cores at once.

    Attributes
    ----------
    bytes : int
        Decoded bytes of the chunks that were read.
    first : float or None
        Bytes decoded in a second as they were read for the first time, from wherever they lay. None where
        there was too little to measure.
    decoding : float or None
        The same as they were read again, into memory that is warm.
    cutting : float or None
        Samples cut in a second, from sequences that are loaded.
    """

    bytes: int
    first: float | None
    decoding: float | None
    cutting: float | None


def measure(feed: Any, plan: Any, cores: int) -> Speed:
    """Measure on the first array, on sequences that a superbatch loads.

    Parameters
    ----------
    feed : ArchiveFeed
    plan : SuperbatchPlan
    cores : int
        Threads that work at once.

    Returns
    -------
    Speed
    """
    cutter = feed.cutter
    stored = cutter.arrays[0]
    boxes = cutter.boxes(plan.sequences)
    if not sum(stored.decoded_bytes(box[0]) for box in boxes):
        return Speed(0, None, None, None)
    # Memory that was written to before: the first reading is to differ by the store alone.
    warm = {
        (thread, shape): np.ones(shape, stored.raw_dtype)
        for thread in range(cores)
        for shape in {_shape(box[0]) for box in boxes[thread::cores]}
    }

    def read(thread: int, most: int) -> tuple[int, int]:
        """Boxes and bytes that one thread reads, one after the other."""
        deadline, done, count = time.perf_counter() + _SECONDS, 0, 0
        for box, *_ in boxes[thread::cores][:most]:
            stored.read(box, warm[thread, _shape(box)])
            done, count = done + stored.decoded_bytes(box), count + 1
            if time.perf_counter() > deadline:
                break
        return count, done

    def rate(done: float, begin: float) -> float | None:
        seconds = time.perf_counter() - begin
        return done / seconds if done >= _BYTES or seconds >= _LONG else None

    with ThreadPoolExecutor(cores) as pool:
        begin = time.perf_counter()
        counts = list(pool.map(lambda n: read(n, len(boxes)), range(cores)))
        first = rate(sum(done for _, done in counts), begin)
        begin = time.perf_counter()
        again = list(pool.map(lambda n: read(n, counts[n][0]), range(cores)))
        decoded = sum(done for _, done in again)
        decoding = rate(decoded, begin)
        cutting = None if decoding is None else _cutting(pool, feed, plan, boxes, cores)
    return Speed(decoded, first, decoding, cutting)


def _shape(box: Any) -> tuple[int, ...]:
    return tuple(b - a for a, b in box)


def _cutting(pool: Any, feed: Any, plan: Any, boxes: Any, cores: int) -> float:
    """Samples cut in a second by all threads, each from one sequence that it has loaded."""
    cutter = feed.cutter
    each = sum(math.prod(shape) * dtype.itemsize for shape, dtype in feed.fields.values())
    most = max(1, _CUT_BYTES // max(1, each))
    rows = [found[:most] for found in plan.rows()]
    ready = []
    for number in np.argsort([-len(r) for r in rows])[:cores].tolist():
        blocks = [Loaded(a.read(b)) for a, b in zip(cutter.arrays, boxes[number], strict=True)]
        slot = {
            n: np.zeros((len(rows[number]), *shape), dtype)
            for n, (shape, dtype) in feed.fields.items()
        }
        ready.append((number, blocks, slot))

    def cut(one: Any) -> int:
        number, blocks, slot = one
        mine = rows[number]
        at = np.arange(len(mine), dtype=np.int64)
        new = [False] * len(blocks)
        cutter.cut(blocks, boxes[number], plan.starts[mine], at, slot, new, plan.noise(mine))
        return len(mine)

    rates = []
    for _ in range(3):
        begin = time.perf_counter()
        count = sum(pool.map(cut, ready))
        rates.append(count / (time.perf_counter() - begin))
    return float(np.median(rates))
