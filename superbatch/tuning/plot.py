"""A picture of trials."""

from __future__ import annotations

import os

from superbatch.tuning.report import Tuning


def plot(found: Tuning, path: str | os.PathLike[str]) -> None:
    """Draw what settings gave.

    Parameters
    ----------
    found : Tuning
    path : path-like
        Of the PNG.
    """
    from matplotlib.figure import Figure

    tried = [(n, trial) for n, trial in enumerate(found.trials) if trial.tried]
    figure = Figure(figsize=(12, 1.6 + 0.32 * max(4, len(tried))), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colours = ["tab:red" if trial is found.best else "tab:blue" for _, trial in tried]
    places = range(len(tried))
    left.barh(places, [trial.fresh_per_second for _, trial in tried], color=colours)
    left.set_yticks(places, [f"{number}  {trial.changed}" for number, trial in tried], fontsize=8)
    left.invert_yaxis()
    left.set_xlabel("fresh samples a second")
    left.set_title("red is the best")

    bars = right.barh(places, [trial.iterations_per_second for _, trial in tried], color=colours)
    waits = [f"waits {trial.stall_fraction:.0%}" for _, trial in tried]
    right.bar_label(bars, waits, label_type="center", color="white", fontsize=8)
    label = "batches a second"
    if found.headspace is not None:
        right.axvline(found.headspace, color="black", linestyle="--")
        label += "; dashed: if loading were free"
    right.set_xlabel(label)
    right.set_title("and the share of the time that training waits")
    figure.savefig(path, dpi=110)
