"""``superbatch demo --stream``: a server, simulations that run, and training on them, in one command."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

import superbatch as sb
from superbatch import stream
from superbatch.commands.produce import FIELDS_AHEAD, STEPS_BETWEEN, simulate
from superbatch.demo.heat import Plate
from superbatch.demo.network import Forecaster
from superbatch.demo.training import BAR, LEARNING_RATE
from superbatch.stats import Stats

SIZE, SAMPLES = 48, 8  # points along an edge of a plate; samples in a batch
ROUND = 16  # batches
KEPT = 64  # batches of each simulation that wait on the server at the most
HELD_OUT = 64  # samples of a plate that nobody trains on
EVERY = 0.5  # seconds from one look at the counts to the next


@dataclass
class Course:
    """What happened; a point every half a second.

    Attributes
    ----------
    seconds, heldout, staleness, fresh, replayed, put : list of float
        Time since the first batch; error on the held-out plate; how old the samples were that came since
        the point before; samples served for the first time and again, and put by the simulations, until then.
    loss : list of float
        Error of the batch of each step, before it was learned from.
    persistence : float
        Error of the guess that nothing changes.
    """

    persistence: float
    seconds: list[float] = field(default_factory=list)
    heldout: list[float] = field(default_factory=list)
    staleness: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)
    put: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)


def run(arguments: argparse.Namespace, folder: Path) -> int:
    """Run it; return the exit status."""
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)  # the simulations and the loader want the other cores
    context = get_context("spawn")
    stopped = context.Event()
    names = [f"plate{number}" for number in range(arguments.processes)]
    with stream.Server() as server:
        start = partial(context.Process, target=simulate)
        kept = stream.Bounded(KEPT)
        simulations = [
            start(
                args=(
                    server.address,
                    name,
                    arguments.seed + n,
                    kept,
                    stopped,
                    None,
                    SAMPLES,
                    SIZE,
                    None,
                )
            )
            for n, name in enumerate(names)
        ]
        for process in simulations:
            process.start()
        print(_heading(names, arguments.buffer), flush=True)
        try:
            course, stats = _train(server.address, arguments)
        finally:
            stopped.set()
            for process in simulations:
                process.join(30)
                if process.is_alive():
                    process.kill()
    print(table(course, stats, len(names)))
    path = folder / "demo-stream.png"
    picture(path, course, stats, arguments.buffer)
    print(f"\npicture: {path}")
    return 0


def _train(address: str, arguments: argparse.Namespace) -> tuple[Course, Stats]:
    network, heldout = Forecaster(2, 1), _heldout(arguments.seed + 1000)
    scale = float((heldout[1] - heldout[0][:, 1]).square().mean().sqrt())
    judge = partial(_error, network, heldout, scale)
    course = Course(persistence=scale)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    source = stream.StreamSource(
        address, "plate*", _buffer(arguments.buffer), expect=arguments.processes, timeout=60
    )
    # Batches of the simulations stay as they are in rounds; out of a reservoir they are drawn anew.
    whole = round(arguments.seconds)
    size = None if arguments.buffer == "rounds" else SAMPLES
    replays: Any = (1, 4) if arguments.buffer == "rounds" else 1
    with (
        sb.SuperbatchDataset(source, size, replays=replays, seed=arguments.seed) as dataset,
        _counter(address) as count_put,
        tqdm(total=whole, unit="s", desc="training", bar_format=BAR) as bar,
    ):
        began = looked = 0.0
        before = dataset.stats()
        for batch in dataset:
            began = began or time.monotonic()
            course.loss.append(_step(network, optimizer, batch, scale))
            now = time.monotonic()
            if now - looked >= EVERY:
                stats = dataset.stats()
                _look(course, now - began, judge(), before, stats, count_put())
                bar.n = min(whole, round(now - began))
                bar.set_postfix_str(
                    f"error {course.heldout[-1]:.3f}, {stats.iterations_per_second:.0f} steps/s, "
                    f"samples {course.staleness[-1]:.2f} s old"
                )
                before, looked = stats, now
            if now - began > arguments.seconds:
                break
        bar.n = whole
        return course, dataset.stats()


def _buffer(name: str) -> Any:
    if name == "rounds":
        return stream.Rounds(ROUND)
    return stream.Reservoir(capacity=2048, watermark=256)


def _heldout(seed: int) -> tuple[Tensor, Tensor]:
    """Samples of a plate whose heaters nobody else has: what is seen, and what is to be found."""
    plate = Plate(SIZE, seed)
    plate.advance(400)  # it is cold at the beginning
    fields = np.stack([plate.advance(STEPS_BETWEEN) for _ in range(HELD_OUT + 2 * FIELDS_AHEAD)])
    values = torch.from_numpy(fields)
    present = slice(FIELDS_AHEAD, FIELDS_AHEAD + HELD_OUT)
    return torch.stack([values[:HELD_OUT], values[present]], dim=1), values[2 * FIELDS_AHEAD :]


def _missing(network: nn.Module, seen: Tensor, target: Tensor, scale: float) -> Tensor:
    """What the network's guess lacks; it adds to the guess that nothing changes."""
    before, now = seen[:, 0], seen[:, 1]
    inputs = torch.stack([(now - before) / scale, now / 10], dim=1)
    missing: Tensor = (target - now) / scale - network(inputs)[:, 0]
    return missing


def _step(network: nn.Module, optimizer: Any, batch: dict[str, Tensor], scale: float) -> float:
    error = _missing(network, batch["data"], batch["target"], scale).square().mean()
    optimizer.zero_grad()
    error.backward()
    optimizer.step()
    return scale * float(error.detach().sqrt())


@torch.no_grad()
def _error(network: nn.Module, heldout: tuple[Tensor, Tensor], scale: float) -> float:
    return scale * float(_missing(network, *heldout, scale).square().mean().sqrt())


def _look(
    course: Course, seconds: float, error: float, before: Stats, stats: Stats, put: int
) -> None:
    def since(name: str) -> float:
        return stats.source.get(name, 0.0) - before.source.get(name, 0.0)

    samples = since("samples")
    old = course.staleness[-1] if course.staleness else 0.0
    course.seconds.append(seconds)
    course.heldout.append(error)
    course.staleness.append(since("age_seconds") / samples if samples else old)
    course.fresh.append(stats.fresh)
    course.replayed.append(stats.replayed)
    course.put.append(put)


class _counter:
    """Counts the samples that all simulations have put."""

    def __init__(self, address: str) -> None:
        from superbatch.stream.reader import Reader

        self._reader = Reader(address)
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> Callable[[], int]:
        return self.count

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def count(self) -> int:
        for entry in self._reader.entries({}, "plate*", 0.0):
            if not entry.last:
                self._numbers[entry.producer] = entry.number + 1
        return SAMPLES * sum(self._numbers.values())


def _heading(names: list[str], buffer: str) -> str:
    return (
        "superbatch demo --stream: training on simulations that are running\n"
        f"  simulations  {', '.join(names)}: heated plates of {SIZE} × {SIZE} points\n"
        f"  learned      the temperature {STEPS_BETWEEN * FIELDS_AHEAD} steps later\n"
        f"  buffer       {_buffer(buffer)}"
    )


def table(course: Course, stats: Stats, simulations: int) -> str:
    """The table at the end, ready to print."""
    source = stats.source
    error = course.heldout[-1]
    gain = course.persistence / error - 1
    rows = [
        ("error on a plate that nobody trains on", f"{error:.3f}"),
        ("the guess that nothing changes", f"{course.persistence:.3f}, {gain:.0%} more"),
        ("steps", f"{stats.iterations:,} at {stats.iterations_per_second:,.0f} a second"),
        ("samples put", f"{course.put[-1]:,.0f} by {simulations} simulations"),
        ("samples served", f"{stats.fresh:,} for the first time, {stats.replayed:,} again"),
        ("rounds", f"{source.get('rounds', 0):,.0f}"),
        ("staleness", f"{stats.staleness:.2f} s from being put to being served, on average"),
        (
            "gaps, torn, evicted",
            ", ".join(f"{source.get(n, 0):.0f}" for n in ("gaps", "torn", "evicted")),
        ),
        ("waited for the simulations", f"{stats.stall_fraction:.1%} of the time"),
    ]
    return "\n".join(["", *(f"  {name:<40}{value}" for name, value in rows)])


def picture(path: Path, course: Course, stats: Stats, buffer: str) -> None:
    """Draw the error, how old samples are, and how many were put and served."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), layout="constrained", dpi=120)
    left, middle, right = figure.subplots(1, 3)
    left.plot(course.seconds, course.heldout, color="C0", label="network")
    left.axhline(course.persistence, color="0.4", ls="--", label="nothing changes")
    left.set(xlabel="seconds", ylabel="error on a plate held out", ylim=(0, None))
    left.legend(frameon=False)
    middle.plot(course.seconds, course.staleness, color="C1")
    middle.set(xlabel="seconds", ylabel="age of samples when served, s", ylim=(0, None))
    right.plot(course.seconds, course.put, color="0.4", ls="--", label="put by simulations")
    right.plot(
        course.seconds, course.fresh, color="C2", lw=4, alpha=0.5, label="served for the first time"
    )
    right.plot(
        course.seconds,
        np.add(course.fresh, course.replayed),
        color="C0",
        label="served in all, with replays",
    )
    right.set(xlabel="seconds", ylabel="samples", ylim=(0, None))
    right.legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"training on {len(course.loss):,} batches of running simulations, out of {buffer}"
    )
    figure.savefig(path)
