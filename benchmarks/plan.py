"""How long planning takes, and that it does not depend on the length of the archive.

``python -m benchmarks.plan`` plans superbatches of 4,096 samples of workload W1, and of the same archive
with two million chunks along time, for both kinds of coverage. No data is read, no store is made.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections.abc import Callable
from functools import partial

from superbatch.archive.chunks import Chunks
from superbatch.archive.plan import Plan
from superbatch.archive.sequences import Axis

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


if __name__ == "__main__":
    main()
