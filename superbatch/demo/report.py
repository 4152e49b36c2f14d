"""What is shown at the end: one table, one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from superbatch.demo.plain import Rate
from superbatch.demo.task import Task
from superbatch.demo.training import History
from superbatch.stats import Stats

TINY = 200_000_000  # bytes: below this, a store says little about archives
COLOURS = {"load": "#4c78a8", "serve": "#54a24b", "stall": "#e45756"}


def table(task: Task, history: History, stats: Stats, rates: list[Rate]) -> str:
    """The table at the end of the demo, ready to print; the first rate is superbatch's."""
    sections = [_errors(task, history), _training(history, stats), _rates(task, rates)]
    return "\n\n".join("\n".join(lines) for lines in sections)


def verdict(history: History) -> str:
    """How the network compares with guessing, in one sentence."""
    network = history.final["network"]
    parts = [
        f"{_compared(network, error)} {name}"
        for name, error in history.final.items()
        if name != "network"
    ]
    return f"The network's error is {', '.join(parts)}"


def _compared(network: float, error: float) -> str:
    change = network / error - 1 if error else 0.0
    return f"{-change:.1%} under" if change < 0 else f"NOT under, but {change:.1%} above"


def _errors(task: Task, history: History) -> list[str]:
    on = "held-out windows" if task.heldout is not None else "the last training batches"
    lines = [f"error on {on}, root mean square"]
    network = history.final["network"]
    for name, error in history.final.items():
        line = _line(name, f"{error:.3g} {task.unit}".rstrip())
        if name != "network":
            line += f"   the network is {_compared(network, error)} it"
        lines.append(line)
    return lines


def _training(history: History, stats: Stats) -> list[str]:
    served = stats.fresh + stats.replayed
    steps = len(history.train)
    return [
        "training with superbatch",
        _line(
            "steps", f"{steps:,} in {history.seconds:.1f} s = {steps / history.seconds:,.0f} it/s"
        ),
        _line("samples", f"{served:,}, of them fresh {stats.fresh:,}, replayed {stats.replayed:,}"),
        _line("first batch after", f"{stats.first_batch_seconds:.1f} s"),
        _line(
            "waited for data after it",
            f"{stats.stall_seconds - stats.first_batch_seconds:.2f} s = {stats.stall_fraction:.1%}",
        ),
    ]


def _rates(task: Task, rates: list[Rate]) -> list[str]:
    lines = [
        "loading alone, nothing replayed",
        "  " + " " * 28 + "samples/s   first batch   samples",
    ]
    for rate in rates:
        lines.append(
            f"  {rate.name:<28}{rate.per_second:>9,.0f}"
            f"{rate.first_seconds:>12.1f} s{rate.samples:>10,}"
        )
    best = max(rates[1:], key=lambda rate: rate.per_second)
    ratio = rates[0].per_second / best.per_second
    lines.append(f"  superbatch : {best.name} = {ratio:.1f} : 1")
    if task.train.nbytes < TINY:
        lines += [
            f"  This array is tiny ({task.train.nbytes / 1e6:.1f} MB, soon all in memory): the ratio",
            "  does not carry over to large archives.",
        ]
    return lines


def _line(name: str, text: str) -> str:
    return f"  {name:<27}{text}"


def picture(path: Path, task: Task, history: History, stats: Stats) -> None:
    """Draw the time line of the loader and of training, and the course of the error.

    Parameters
    ----------
    path : Path
        The PNG to write.
    """
    figure = Figure(figsize=(10, 6.4), layout="constrained", dpi=120)
    above, below = figure.subplots(2, 1, height_ratios=(1, 1.7))
    _time_line(above, stats)
    _curve(below, task, history)
    figure.savefig(path)


def _time_line(axes: Axes, stats: Stats) -> None:
    labels = {
        "load": "loader makes a superbatch",
        "serve": "training on batches",
        "stall": "training waits",
    }
    end = max((stop for _, _, stop in stats.timeline), default=1.0)
    for row, kind in enumerate(labels):
        # a wait of less than a millisecond is none
        shortest = 1e-3 if kind == "stall" else 0.0
        spans = [(a, b - a) for name, a, b in stats.timeline if name == kind and b - a >= shortest]
        # at least a pixel wide, so that short events are seen
        axes.broken_barh(
            [(a, max(length, end / 1000)) for a, length in spans],
            (row - 0.36, 0.72),
            facecolor=COLOURS[kind],
            edgecolor="white" if kind == "serve" else "none",
            linewidth=0.3,
        )
        total = sum(length for _, length in spans)
        axes.annotate(
            f"{len(spans)} ×, {total:.2f} s",
            (1.005, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(labels)), list(labels.values()))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(min(0.0, *(a for _, a, _ in stats.timeline)) if stats.timeline else 0.0, end)
    axes.set_xlabel("seconds since the first batch was asked for")
    axes.set_title(
        f"Training waited for {stats.stall_fraction:.1%} of the time after its first batch",
        loc="left",
    )
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, task: Task, history: History) -> None:
    steps = np.arange(1, len(history.train) + 1)
    axes.plot(steps, history.train, color="0.8", lw=0.8, label="training, each batch")
    if history.heldout:
        axes.plot(
            history.judged_at,
            history.heldout,
            color=COLOURS["load"],
            lw=2,
            marker="o",
            ms=3,
            label="held-out windows",
        )
    styles = iter(("--", ":", "-."))
    for name, error in history.final.items():
        if name != "network":
            axes.axhline(
                error, color="black", lw=1.2, ls=next(styles), label=f"{name}: {error:.3g}"
            )
    axes.set_xlim(0, max(1, len(history.train)))
    axes.set_xlabel("training step")
    axes.set_ylabel(
        f"root mean square error ({task.unit})" if task.unit else "root mean square error"
    )
    axes.set_title(verdict(history), loc="left")
    axes.legend(frameon=False, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
