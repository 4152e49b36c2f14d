"""What a search has found: a table, a reason, the Python to paste, a picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from superbatch.tuning.trial import Choice, Trial


@dataclass(frozen=True)
class Tuning:
    """What :func:`superbatch.tune` has found.

    Attributes
    ----------
    trials : list of Trial
        In the order in which they were made; the first is the setting as it was given.
    best : Trial
        Of the trials: the fewest stalls, and then the most fresh samples.
    headspace : float or None
        Batches a second if loading were free; None where nothing was trained.
    batch_size : int
    cores : int
        That loaders and threads were to share.
    """

    trials: list[Trial]
    best: Trial
    headspace: float | None
    batch_size: int
    cores: int

    @property
    def choice(self) -> Choice:
        """The settings of the best trial."""
        return self.best.choice

    def python(self) -> str:
        """The settings as Python, to paste."""
        c = self.choice
        return (
            "source = sb.ArchiveSource(\n"
            "    windows,  # as before\n"
            f"    samples={c.samples},\n"
            f"    sequences={c.sequences},\n"
            f"    chunks_per_sequence={c.chunks_per_sequence!r},\n"
            f"    turnover={c.turnover:g},\n"
            ")\n"
            "dataset = sb.SuperbatchDataset(\n"
            f"    source, batch_size={self.batch_size}, loaders={c.loaders}, threads={c.threads}, "
            f"replays={c.replays!r}\n"
            ")"
        )

    def explain(self) -> str:
        """Why these settings, in a few sentences."""
        first, top = self.trials[0], self.best
        rate = f"{top.iterations_per_second:,.0f} batches a second"
        if self.headspace is None:
            lines = [f"a loop that takes batches as fast as they come gets {rate}"]
        else:
            share = top.iterations_per_second / self.headspace
            lines = [
                f"training makes {rate}, {share:.0%} of the {self.headspace:,.0f} that it would make if "
                f"loading were free, and waits {top.stall_fraction:.1%} of the time"
            ]
        if top is first:
            lines.append("none of the settings that were tried is better than those given")
        else:
            gain = top.fresh_per_second / first.fresh_per_second if first.fresh_per_second else 0.0
            lines.append(
                f"against the settings as given: {gain:.2f} times as many fresh samples a second, "
                f"and {first.stall_fraction:.1%} of the time spent waiting before"
            )
        if self.headspace is None:
            lines.append(
                "give it your training step: what that leaves of the cores is what loaders have"
            )
        else:
            lines.append(_next_step(top, share))
        return "\n".join(f"- {line}" for line in lines)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the trials as a PNG: fresh samples against stalls, and batches against headspace."""
        from superbatch.tuning.plot import plot

        plot(self, path)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "headspace": self.headspace,
            "batch_size": self.batch_size,
            "cores": self.cores,
            "best": self.best.as_dict(),
            "trials": [trial.as_dict() for trial in self.trials],
        }

    def __str__(self) -> str:
        head = f"{'batches/s':>9}  {'fresh/s':>8}  {'stall':>6}  {'replays':>7}  {'memory':>8}  {'shuffle':>7}"
        rows = [f"     {head}  what was changed"]
        for number, trial in enumerate(self.trials):
            mark = "*" if trial is self.best else " "
            figures = (
                f"{trial.iterations_per_second:9,.0f}  {trial.fresh_per_second:8,.0f}  "
                f"{trial.stall_fraction:6.1%}  {trial.replay_ratio:7.2f}  "
                f"{trial.memory_bytes / 1e9:5.2f} GB  {trial.score:7.2f}"
                if trial.tried
                else f"{trial.note:>{len(head)}.{len(head)}}"
            )
            rows.append(f"{mark} {number:2} {figures}  {trial.changed}")
        return "\n".join([*rows, "", self.explain(), "", self.python()])


def _next_step(top: Trial, share: float) -> str:
    if share > 0.97:
        return "the training step sets the pace: faster loading would not make it faster"
    if top.replay_ratio > 0.05:
        return (
            f"each fresh sample is served {1 + top.replay_ratio:.1f} times: faster storage or more cores would "
            "give fresh ones instead"
        )
    return (
        "what is missing is time of cores and of memory that loaders and the loop share: more cores, "
        "a larger batch or a step on a GPU would help"
    )
