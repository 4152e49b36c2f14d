"""Draw the pictures of the documentation from what the package really does.

python docs/make_pictures.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from superbatch.archive.chunks import Chunks
from superbatch.archive.plan import Plan
from superbatch.archive.sequences import Axis

LOADER, TRAINING, STORED, MEMORY = "#dbe8f5", "#dff0dc", "#eeeeee", "#fbe3c5"

CHUNK, PER_SEQUENCE, WIDTH = 6, 2, 5  # steps in a chunk, chunks in a sequence, steps in a window


def flow(path: Path) -> None:
    """From the archive, or a simulation, to batches."""
    figure = Figure(figsize=(11, 3.7), layout="constrained", dpi=110)
    axes = figure.subplots()
    axes.set(xlim=(0, 110), ylim=(0, 37))
    axes.axis("off")
    _area(axes, 22, 40, LOADER, "loader processes, in the background: Dask, all cores")
    _area(axes, 82, 27, TRAINING, "training process")
    _box(axes, 1, 18, 16, 12, STORED, "Zarr archive\nchunks, compressed")
    _box(axes, 1, 2, 16, 10, STORED, "simulation\nRedis or Valkey")
    _box(axes, 25, 18, 15, 12, "white", "plan and graph\nread runs of\nwhole chunks once")
    _box(axes, 45, 18, 14, 12, "white", "cut thousands\nof samples\nat random")
    _box(axes, 25, 2, 34, 10, "white", "fetch numbered batches, as they come")
    _box(axes, 65, 18, 13, 12, MEMORY, "slot:\na superbatch in\nshared memory")
    _box(axes, 65, 2, 13, 10, MEMORY, "slot: the one\nat hand")
    _box(axes, 85, 2, 21, 10, "white", "shuffle, and replay\nuntil the next is there")
    _box(axes, 85, 18, 21, 12, "white", "batches\nfor the GPU")
    for begin, end in (
        ((17, 24), (25, 24)),
        ((17, 7), (25, 7)),
        ((40, 24), (45, 24)),
        ((59, 24), (65, 24)),
        ((59, 7), (65, 20)),
        ((71.5, 18), (71.5, 12)),
        ((78, 7), (85, 7)),
        ((95.5, 12), (95.5, 18)),
    ):
        axes.annotate("", end, begin, arrowprops={"arrowstyle": "-|>", "lw": 1.6, "color": "0.25"})
    axes.text(72.5, 15, "token", ha="left", va="center", fontsize=9, color="0.25")
    figure.savefig(path)


def _area(axes: Axes, x: float, width: float, colour: str, title: str) -> None:
    axes.broken_barh([(x, width)], (0, 35.5), facecolor=colour, zorder=0)
    axes.text(x + width / 2, 33, title, ha="center", va="center", fontsize=9, color="0.25")


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, colour: str, text: str
) -> None:
    axes.broken_barh([(x, width)], (y, height), facecolor=colour, edgecolor="0.4", lw=1, zorder=1)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5)


def sampling(path: Path) -> None:
    """Who owns which window, and how superbatches slide over the stream of hits."""
    figure = Figure(figsize=(10, 6), layout="constrained", dpi=110)
    above, below = figure.subplots(2, 1, height_ratios=(1, 1))
    _owners(above)
    _hits(below)
    figure.savefig(path)


def _owners(axes: Axes) -> None:
    axis = Axis("time", Chunks.regular(36, CHUNK), WIDTH, PER_SEQUENCE)
    starts = np.arange(axis.total)
    owners = axis.owner(starts)
    rows = WIDTH + 1
    for start, owner in zip(starts.tolist(), owners.tolist(), strict=True):
        axes.broken_barh(
            [(start + 0.1, WIDTH - 0.2)], (start % rows + 0.2, 0.6), facecolor=_colour(owner), lw=0
        )
    for border in range(0, 37, CHUNK):
        ends_block = border % (CHUNK * PER_SEQUENCE) == 0
        axes.axvline(border, color="black", lw=1.6 if ends_block else 0.6, zorder=0)
    for owner in np.unique(owners).tolist():
        first, last = (int(n[0]) for n in axis.span(np.array([owner])))
        begin, end = first // CHUNK * CHUNK, -(-(last + WIDTH) // CHUNK) * CHUNK
        row = -1.1 - owner % 2
        axes.broken_barh([(begin + 0.1, end - begin - 0.2)], (row, 0.7), facecolor=_colour(owner))
        kind = "border" if owner % 2 else "interior"
        windows = int((owners == owner).sum())
        axes.text(
            (begin + end) / 2, row + 0.33, f"{kind}: {windows} windows", ha="center", va="center"
        )
    axes.set(xlim=(-0.2, 36.2), ylim=(-2.3, rows), xlabel="time step")
    axes.set_xticks(range(0, 37, CHUNK))
    axes.set_yticks(
        [-1.6, rows / 2], ["what is loaded\nfor each item", "each window,\nby its owner"]
    )
    axes.set_title(
        f"Windows of {WIDTH} steps, chunks of {CHUNK}, {PER_SEQUENCE} chunks in a sequence: "
        "each window has one owner",
        loc="left",
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _hits(axes: Axes) -> None:
    length, sequences, shown = 12_000, 8, 5
    axis = Axis("time", Chunks.regular(length, 10), WIDTH, PER_SEQUENCE)
    plan = Plan([axis], samples=64, sequences=sequences, batch_size=8, turnover=0.25)
    step = length // sequences  # a row of the picture
    places = {}
    for index in range(shown):
        first, row = index * plan.replaced, -(index + 1) * step
        for number, item in enumerate(plan.hits(0, index)):
            places[first + number] = sum(int(n[0]) for n in axis.span(item)) / 2
        axes.broken_barh(
            [(first - 0.4, sequences - 0.2)], (row + 0.1 * step, 0.8 * step), facecolor="0.85"
        )
        axes.text(
            first + sequences / 2 - 0.5,
            row + 0.5 * step,
            f"superbatch {index}",
            ha="center",
            va="center",
        )
    for part in range(0, length + 1, step):
        axes.axhline(part, color="0.8", lw=0.8, zorder=0)
    for number, place in places.items():
        axes.plot(number, place, "o", color=f"C{number // sequences}", ms=6)
    axes.set(xlim=(-0.6, len(places) - 0.4), ylim=(-shown * step, length), xlabel="hit number")
    axes.set_xticks(range(len(places)))
    axes.set_yticks(
        [-shown * step / 2, length / 2], ["what each\nsuperbatch holds", "place in\nthe archive"]
    )
    axes.set_title(
        "Hits 0 to 7 have one in each eighth of the archive, and so have 8 to 15; "
        "turnover=0.25 moves on by two",
        loc="left",
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _colour(owner: int) -> str:
    return ("#f0a04b" if owner // 2 % 2 else "#f6c28b") if owner % 2 else "#7fb0dc"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    flow(folder / "flow.png")
    sampling(folder / "sampling.png")
