"""A reservoir of samples: bounded, and without the bias of the latest. Knows nothing of a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from superbatch.arguments import check_count
from superbatch.errors import ArgumentError, shown

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reservoir:
    """Samples are drawn at random from all that are held; new ones take the place of seen ones.

    A sample that was not seen yet is never thrown out: where all are unseen, no more are taken, and a
    ``Bounded`` producer waits. When the stream is over, what is held is served once more, each sample once, so
    that every sample put has been seen. This is the Reservoir of Meyer, Schouler, Caulk, Ribés and Raffin 2023,
    "High throughput training of deep surrogates from large ensemble runs" (arXiv 2309.16743).

    Parameters
    ----------
    capacity : int
        Samples that are held.
    watermark : int
        Samples that are waited for before the first is served.
    ratio : float, optional
        Samples served for each sample that has come in, at the most, as ``SampleToInsertRatio`` of Reverb
        (Cassirer et al. 2021): where training is faster, it waits. 1 or more. At the end of the stream, where
        what is held is served once more, and where nothing could come in for want of room, it does not hold.
    superbatch : int, optional
        Samples that are drawn at once; what comes in meanwhile may be in the next. By default a sixteenth of the
        capacity, but one batch at the least.

    Examples
    --------
    >>> Reservoir(10_000, watermark=1_000).capacity
    10000
    """

    capacity: int
    watermark: int = 1
    ratio: float | None = None
    superbatch: int | None = None

    def __post_init__(self) -> None:
        check_count("capacity", self.capacity, 1)
        check_count("watermark", self.watermark, 1)
        if self.superbatch is not None:
            check_count("superbatch", self.superbatch, 1)
        if self.watermark > self.capacity:
            raise ArgumentError(
                f"watermark={self.watermark} is more than capacity={self.capacity}, so that nothing would ever be "
                f"served: write a watermark of at most the capacity"
            )
        ratio = self.ratio
        number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
        if ratio is not None and not (number and ratio >= 1):
            raise ArgumentError(
                f"ratio={shown(ratio)} is no number of samples served for each that has come in: write 1 or more, "
                f"or None for no limit"
            )


class Pool:
    """Which places of a reservoir hold something, and whether it was seen.

    Parameters
    ----------
    capacity : int
        Places.

    Attributes
    ----------
    seen, unseen : list of int
        Places that hold something which was drawn, and which was not.
    inserted, drawn : int
        How often, in all.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen: list[int] = []
        self.unseen: list[int] = []
        self._free = list(range(capacity - 1, -1, -1))
        self.inserted = self.drawn = 0

    def __len__(self) -> int:
        return len(self.seen) + len(self.unseen)

    @property
    def room(self) -> int:
        """How much can come in: the unseen are never thrown out."""
        return self.capacity - len(self.unseen)

    def insert(self, count: int, rng: np.random.Generator) -> list[int]:
        """Places for new ones: free ones, then those of seen ones, at random.

        Raises
        ------
        ValueError
            There is no room for so many.
        """
        if count > self.room:
            raise ValueError(f"there is room for {self.room}, not for {count}")
        places = [self._free.pop() for _ in range(min(count, len(self._free)))]
        while len(places) < count:
            places.append(_pop(self.seen, int(rng.integers(len(self.seen)))))
        self.unseen += places
        self.inserted += count
        return places

    def draw(self, count: int, rng: np.random.Generator, *, remove: bool = False) -> list[int]:
        """Distinct places, uniformly at random; they have been seen from now on, or are free again.

        Fewer than ``count`` where fewer are held.
        """
        held, new = len(self), len(self.unseen)
        picked = (
            rng.choice(held, min(count, held), replace=False) if held else np.empty(0, np.int64)
        )
        places = [self.unseen[i] if i < new else self.seen[i - new] for i in picked.tolist()]
        # From the end, so that what takes a popped one's place was not picked itself.
        for i in np.sort(picked)[::-1].tolist():
            place = _pop(self.unseen, i) if i < new else _pop(self.seen, i - new)
            (self._free if remove else self.seen).append(place)
        self.drawn += len(places)
        return places

    def restore(
        self, seen: Sequence[int], unseen: Sequence[int], inserted: int, drawn: int
    ) -> None:
        """Hold what was held once."""
        self.seen, self.unseen = list(seen), list(unseen)
        held = {*seen, *unseen}
        self._free = [place for place in range(self.capacity - 1, -1, -1) if place not in held]
        self.inserted, self.drawn = inserted, drawn


def _pop(places: list[int], at: int) -> int:
    """Take one out; the last takes its place."""
    last = places.pop()
    if at == len(places):
        return last
    found, places[at] = places[at], last
    return found
