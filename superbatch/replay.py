"""The order in which the samples of a superbatch are served: first pass and replays.

Knows nothing of processes, and nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from superbatch import seeds
from superbatch.errors import ArgumentError, shown

Ints = npt.NDArray[np.int64]

# Repeats are free in time up to the ratio of loading to training; beyond four or five they teach little
# (Choi, Passos, Shallue and Dahl 2019, "Faster neural network training with data echoing").
MOST_ECHOES = 5


@dataclass(frozen=True)
class Replays:
    """How many passes are made over a superbatch.

    Attributes
    ----------
    least, most : int
        At least ``least`` passes, then more until the next superbatch is there, ``most`` of them at the most.
    auto : bool
        ``most`` follows the measured ratio of loading to training time.
    """

    least: int
    most: int
    auto: bool = False

    @classmethod
    def of(cls, given: int | tuple[int, int] | str, deterministic: bool = False) -> Replays:
        """From what the user wrote; with ``deterministic`` a range is its lower end.

        Examples
        --------
        >>> Replays.of((1, 4)).most, Replays.of(3).least, Replays.of((1, 4), deterministic=True).most
        (4, 3, 1)
        """
        wrong = ArgumentError(
            f'replays={shown(given)} is not a number of passes: write an int, a pair (least, most), or "auto"'
        )
        if isinstance(given, str):
            if given != "auto":
                raise wrong
            return cls(1, 1) if deterministic else cls(1, MOST_ECHOES, auto=True)
        pair = tuple(given) if isinstance(given, (tuple, list)) else (given, given)
        if len(pair) != 2 or not all(
            isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in pair
        ):
            raise wrong
        least, most = map(int, pair)
        if not 1 <= least <= most:
            raise ArgumentError(
                f"replays={shown(given)} is no range: write 1 <= least <= most, such as (1, 4)"
            )
        return cls(least, least if deterministic else most)

    @property
    def fixed(self) -> bool:
        """Whether the number of passes does not depend on time."""
        return self.least == self.most

    def limit(self, load_seconds: float, serve_seconds: float) -> int:
        """Most passes, given how long a superbatch takes to load and a pass over one to train on."""
        if not self.auto:
            return self.most
        if serve_seconds <= 0:
            return self.least
        return int(np.clip(np.ceil(load_seconds / serve_seconds), self.least, self.most))


def order(
    samples: int,
    number: int,
    *,
    shuffle: bool,
    seed: int,
    epoch: int,
    superbatch: int,
    rank: int,
    shuffled: bool = True,
) -> Ints:
    """The rows of a slot in the order of one pass.

    The first pass takes them as they lie where the plan has ``shuffled`` them already.
    """
    if not shuffle or (number == 0 and shuffled):
        return np.arange(samples, dtype=np.int64)
    rng = seeds.generator(seed, "replay", epoch, superbatch, rank, number)
    return rng.permutation(samples).astype(np.int64)


def whole(sizes: Sequence[int], order: Ints) -> tuple[Ints, list[int]]:
    """Rows and sizes of batches that change places as a whole.

    Examples
    --------
    >>> rows, sizes = whole([1, 2], np.array([1, 0]))
    >>> rows.tolist(), sizes
    ([1, 2, 0], [2, 1])
    """
    begins = np.cumsum([0, *sizes])
    rows = [np.arange(begins[i], begins[i + 1], dtype=np.int64) for i in order.tolist()]
    return np.concatenate(rows), [sizes[i] for i in order.tolist()]


def batches(rows: Ints, sizes: Sequence[int]) -> Iterator[Ints]:
    """The rows of each batch of a pass."""
    at = 0
    for size in sizes:
        yield rows[at : at + size]
        at += size
