"""A picture of how windows lie in chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_MOST_LINES = 200  # chunk borders that are drawn along a dimension


def plot(source: Any, path: Path) -> None:
    """Draw the windows of a superbatch and the chunks of the array, along two dimensions at most.

    Parameters
    ----------
    source : ArchiveSource
    path : Path
        Of the PNG.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from superbatch.source import Settings

    feed = source.bind(Settings(1, 0, 0, 1, True, 1, 1))
    plan, cutter = feed.plan.superbatch(0, 1), feed.cutter
    cut, stored = cutter.cuts[0], cutter.arrays[0]
    moving = [d for d, lookup in enumerate(cut.lookups) if lookup is not None]
    anchors = cutter.anchors.of(plan.starts)
    corner = {d: cut.lookups[d].at(anchors) + cut.offset[d] for d in moving}
    pairs = [moving[:2]] if len(moving) < 3 else [[moving[0], moving[1]], [moving[1], moving[2]]]
    figure = Figure(figsize=(6 * len(pairs), 5), layout="constrained")
    axes = figure.subplots(1, len(pairs), squeeze=False)
    some = np.linspace(0, len(anchors) - 1, min(len(anchors), 300)).astype(int)
    colours = colormaps["tab20"](plan.sequence_of[some] % 20)
    for panel, dims in zip(axes[0], pairs, strict=True):
        first, second = dims[0], dims[1] if len(dims) > 1 else None
        _borders(panel.axvline, stored.chunks[first])
        if second is not None:
            _borders(panel.axhline, stored.chunks[second])
        for number, row in enumerate(some):
            y, height = (
                (corner[second][row], cut.size[second]) if second is not None else (number, 0.8)
            )
            panel.add_patch(
                Rectangle(
                    (corner[first][row], y),
                    cut.size[first],
                    height,
                    fill=False,
                    edgecolor=colours[number],
                    linewidth=0.8,
                )
            )
        panel.set_xlim(0, stored.shape[first])
        panel.set_ylim(0, stored.shape[second] if second is not None else len(some))
        panel.set_xlabel(f"{stored.dims[first]} (grey: chunk borders)")
        panel.set_ylabel(stored.dims[second] if second is not None else "sample")
    figure.suptitle(f"{len(some)} windows of a superbatch, one colour for each chunk sequence")
    figure.savefig(path, dpi=110)


def _borders(line: Any, chunks: Any) -> None:
    step = max(1, chunks.count // _MOST_LINES)
    for border in chunks.start(np.arange(0, chunks.count + 1, step)).tolist():
        line(border, color="0.85", linewidth=0.6, zorder=0)
