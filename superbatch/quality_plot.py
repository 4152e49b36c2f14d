"""A picture of how well samples are shuffled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from superbatch.quality import Quality, percent

_SERVED, _SHUFFLE = "#4c78a8", "#e45756"
_SEEN = {"not at all": "#d9d9d9", "once": "#54a24b", "twice or more": "#f2a541"}


def draw(quality: Quality, path: str | Path) -> None:
    """Draw the entropy of batches, the sequences in them, and the windows that are seen."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(5, 4, 4))
    _entropies(left, quality)
    _origins(middle, quality)
    _windows(right, quality)
    figure.suptitle(
        f"{quality.score:.0%} of the entropy of a true shuffle: {quality.batches:,} batches of "
        f"{quality.batch_size} out of {quality.superbatches} superbatches",
        fontweight="bold",
    )
    figure.savefig(path, dpi=130)


def _entropies(axes: Axes, quality: Quality) -> None:
    axes.plot(
        np.arange(quality.batches),
        quality.entropies,
        ".",
        color=_SERVED,
        ms=3,
        alpha=0.6,
        label="a batch",
    )
    axes.axhline(quality.entropy, color=_SERVED, lw=2, label=f"their mean, {quality.entropy:.2f}")
    shuffled = quality.shuffled_entropy
    top = max(shuffled, float(quality.entropies.max()), 0.1)
    axes.axhline(shuffled, color=_SHUFFLE, lw=2, ls="--", label=f"a true shuffle, {shuffled:.2f}")
    axes.set(
        title="How evenly a batch spreads over sequences",
        xlabel="batch, in the order of serving",
        ylabel="entropy of origin (bits, corrected)",
        ylim=(-0.05 * top, 1.25 * top),
    )
    axes.legend(loc="best", fontsize="small")


def _origins(axes: Axes, quality: Quality) -> None:
    values, counts = np.unique(quality.origins, return_counts=True)
    axes.bar(values, counts / quality.batches, color=_SERVED, width=0.8, label="batches served")
    shuffled = quality.shuffled_batch_sequences
    axes.axvline(
        shuffled, color=_SHUFFLE, lw=2, ls="--", label=f"a true shuffle, {shuffled:.1f} on average"
    )
    axes.set(
        title="Sequences that a batch comes from",
        xlabel=f"distinct sequences among {quality.batch_size} samples",
        ylabel="share of batches",
        xlim=(0, max(shuffled, values.max()) + 1),
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    # Room for the legend above the bars, and no ticks beyond all of the batches.
    highest = (counts / quality.batches).max()
    axes.set_ylim(0, 1.25 * highest)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(1, 1.25 * highest)])
    axes.legend(loc="upper left", fontsize="small")


def _windows(axes: Axes, quality: Quality) -> None:
    rows = ["of all\nwindows", "of those in\nloaded sequences"]
    shares = [
        (quality.unseen, quality.loaded_unseen),
        (quality.seen_once, quality.loaded_once),
        (quality.seen_more, quality.loaded_more),
    ]
    at = np.zeros(2)
    for (name, colour), pair in zip(_SEEN.items(), shares, strict=True):
        axes.bar(rows, pair, bottom=at, color=colour, width=0.6, label=name)
        for row, (share, bottom) in enumerate(zip(pair, at.tolist(), strict=True)):
            if share >= 0.04:
                axes.text(row, bottom + share / 2, percent(share), ha="center", va="center")
        at += pair
    axes.set(
        title=f"Windows seen by {quality.fresh:,} fresh samples",
        ylabel="share of windows",
        ylim=(0, 1),
        xlim=(-0.6, 1.6),
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize="small", frameon=False
    )
