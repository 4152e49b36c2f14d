"""The training loop of the demo: what a user would write, and a progress bar."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm import tqdm

from superbatch import Stats, SuperbatchDataset
from superbatch.demo.network import Learner

LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.1
JUDGEMENTS = 24  # how often the held-out windows are looked at
BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {rate_fmt}{postfix}"


@dataclass
class History:
    """What happened in training; errors are root mean squares in the unit of the data.

    Attributes
    ----------
    train : list of float
        Error of the network for the batch of each step, before it learned from it.
    judged_at : list of int
        Steps after which the held-out windows were looked at.
    heldout : list of float
        Error of the network for them.
    final : dict of str to float
        Error of ``"network"`` at the end, and of each guess without one: for the held-out windows
        where there are some, else for the last batches.
    seconds : float
        From the first batch to the end of training.
    """

    train: list[float] = field(default_factory=list)
    judged_at: list[int] = field(default_factory=list)
    heldout: list[float] = field(default_factory=list)
    final: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def train(
    dataset: SuperbatchDataset,
    name: str,
    learner: Learner,
    heldout: list[Tensor] | None,
    steps: int,
    seconds: float,
    unit: str,
) -> History:
    """Train for a number of steps, or of seconds, whichever ends first.

    Parameters
    ----------
    dataset : SuperbatchDataset
        Gives batches without an end.
    name : str
        The modality of a batch that is learned.
    learner : Learner
        Is trained in place.
    heldout : list of Tensor of shape (batch, ...), or None
        Windows that training never sees.
    steps, seconds : int, float
        How long to train; seconds count from the first batch.
    unit : str
        Unit of the data.
    """
    history = History()
    optimizer = torch.optim.AdamW(learner.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    recent: deque[Tensor] = deque(maxlen=32)  # for judging where nothing is held out
    began = judged = 0.0
    with tqdm(
        total=steps,
        desc="training",
        unit="it",
        bar_format=BAR,
        dynamic_ncols=True,
        disable=None,  # where nobody watches
    ) as bar:
        for step, batch in enumerate(dataset, start=1):
            if step == 1:
                began = time.monotonic()
                gauge = _Gauge(dataset.stats())
                bar.unpause()  # its it/s begin here
                learner.fit_scale(batch[name])
                _judge(learner, heldout, history, 0)
            loss = learner.loss(batch[name])
            optimizer.zero_grad()
            loss.backward()
            done = min(1.0, max(step / steps, (time.monotonic() - began) / seconds))
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * _schedule(done)
            optimizer.step()
            history.train.append(math.sqrt(loss.item()) * float(learner.scale))
            recent.append(batch[name])
            bar.update()
            if done >= judged + 1 / JUDGEMENTS or done == 1.0:
                judged = done
                _judge(learner, heldout, history, step)
                error = history.heldout[-1] if history.heldout else history.train[-1]
                fed = gauge(dataset.stats())
                bar.set_postfix_str(f"{fed}, error {error:.3g} {unit}".rstrip(), refresh=False)
            if done == 1.0:
                break
    history.seconds = time.monotonic() - began
    history.final = learner.errors(heldout or recent)
    return history


def _schedule(done: float) -> float:
    """A tenth of training to warm up, then down to zero along a cosine."""
    return min(done / 0.1, 1.0) * 0.5 * (1.0 + math.cos(math.pi * done))


def _judge(learner: Learner, heldout: list[Tensor] | None, history: History, step: int) -> None:
    if heldout is not None:
        history.judged_at.append(step)
        history.heldout.append(learner.errors(heldout)["network"])


class _Gauge:
    """How training is fed now: since the last look, not since the beginning."""

    def __init__(self, stats: Stats) -> None:
        self.began, self.stats = time.monotonic(), stats

    def __call__(self, stats: Stats) -> str:
        now, before = time.monotonic(), self.stats
        passed = max(now - self.began, 1e-9)
        fresh = (stats.fresh - before.fresh) / passed
        stall = (stats.stall_seconds - before.stall_seconds) / passed
        self.began, self.stats = now, stats
        return f"fresh {fresh:,.0f}/s, stall {stall:.1%}"
