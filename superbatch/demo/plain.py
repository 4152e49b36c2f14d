"""Loading alone: superbatch beside a plain map-style ``torch.utils.data.DataLoader``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler
from tqdm import tqdm

from superbatch.archive.read_config import configure
from superbatch.demo.task import Task, count, cut, starts


@dataclass(frozen=True)
class Rate:
    """How fast one loader was.

    Attributes
    ----------
    name : str
        The loader.
    samples : int
        Samples that it gave, each read for this purpose.
    first_seconds : float
        From asking for the first batch to having it, processes started included.
    seconds : float
        From having the first batch to having the last.
    per_second : float
        Samples a second after the first batch.
    """

    name: str
    samples: int
    first_seconds: float
    seconds: float
    per_second: float


class Windows(Dataset[torch.Tensor]):
    """Every window of the training part, read when it is asked for."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.ranges = starts(task.train, task.window)

    def __len__(self) -> int:
        return count(self.task.train, self.task.window)

    def __getitem__(self, index: int) -> torch.Tensor:
        at = np.unravel_index(index, [len(along) for along in self.ranges])
        return torch.from_numpy(cut(self.task.train, self.task.window, tuple(map(int, at))))


def plain_loader(task: Task, batch_size: int, samples: int, workers: int, seed: int) -> Any:
    """A ``DataLoader`` over random windows, with the same Zarr codecs that superbatch uses."""
    configure(1)  # of this process, for workers=0
    windows = Windows(task)
    return DataLoader(
        windows,
        batch_size=batch_size,
        sampler=RandomSampler(
            windows,
            replacement=True,
            num_samples=samples,
            generator=torch.Generator().manual_seed(seed),
        ),
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
        worker_init_fn=_configure_worker if workers else None,
        prefetch_factor=4 if workers else None,
    )


def measure(
    name: str, make: Callable[[], Iterable[Any]], batch_size: int, samples: int, seconds: float
) -> Rate:
    """Take batches until there are enough samples, or for a number of seconds after the first."""
    batches = -(-samples // batch_size)
    began = time.monotonic()
    first = last = began
    got = 0
    with tqdm(
        total=batches * batch_size,
        desc=name,
        bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} samples",
        leave=False,
        dynamic_ncols=True,
        disable=None,
    ) as bar:
        for _batch in make():
            got += 1
            last = time.monotonic()
            first = last if got == 1 else first
            bar.update(batch_size)
            if got >= batches or last - first > seconds:
                break
    taken = max(last - first, 1e-9)
    return Rate(name, got * batch_size, first - began, taken, (got - 1) * batch_size / taken)


def _configure_worker(_worker: int) -> None:
    configure(1)
