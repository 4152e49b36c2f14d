"""A reservoir of samples: bounded, and without the bias of the latest. Knows nothing of a server."""

from __future__ import annotations

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
    inserted, drawn : int
        How often, in all.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._seen, self._unseen, self._free = (_Places(capacity) for _ in range(3))
        self._free.add(np.arange(capacity))
        self.inserted = self.drawn = 0

    def __len__(self) -> int:
        return len(self._seen) + len(self._unseen)

    @property
    def seen(self) -> Ints:
        """Places that hold something which was drawn."""
        return self._seen.all

    @property
    def unseen(self) -> Ints:
        """Places that hold something which was not."""
        return self._unseen.all

    @property
    def room(self) -> int:
        """How much can come in: the unseen are never thrown out."""
        return self.capacity - len(self._unseen)

    def insert(self, count: int, rng: np.random.Generator) -> Ints:
        """Places for new ones: free ones, then those of seen ones, at random.

        Raises
        ------
        ValueError
            There is no room for so many.
        """
        if count > self.room:
            raise ValueError(f"there is room for {self.room}, not for {count}")
        free = min(count, len(self._free))
        places = self._free.take(np.arange(len(self._free) - free, len(self._free)))
        if count > free:
            thrown = rng.choice(len(self._seen), count - free, replace=False)
            places = np.concatenate([places, self._seen.take(thrown)])
        self._unseen.add(places)
        self.inserted += count
        return places

    def draw(self, count: int, rng: np.random.Generator, *, remove: bool = False) -> Ints:
        """Distinct places, uniformly at random; they have been seen from now on, or are free again.

        Fewer than ``count`` where fewer are held.
        """
        held, new = len(self), len(self._unseen)
        if not held:
            return np.empty(0, np.int64)
        picked = rng.choice(held, min(count, held), replace=False)
        first = picked < new
        places = np.empty(len(picked), np.int64)
        places[first] = self._unseen.take(picked[first])
        places[~first] = self._seen.take(picked[~first] - new)
        (self._free if remove else self._seen).add(places)
        self.drawn += len(places)
        return places

    def restore(self, seen: Ints, unseen: Ints, inserted: int, drawn: int) -> None:
        """Hold what was held once."""
        self._seen, self._unseen, self._free = (_Places(self.capacity) for _ in range(3))
        self._seen.add(seen)
        self._unseen.add(unseen)
        free = np.ones(self.capacity, bool)
        free[seen] = free[unseen] = False
        self._free.add(np.flatnonzero(free))
        self.inserted, self.drawn = inserted, drawn


class _Places:
    """Distinct places; what is taken out leaves no hole, at a cost by how many are taken, not by how many there are."""

    def __init__(self, capacity: int) -> None:
        self._places = np.empty(capacity, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def all(self) -> Ints:
        """All of them; to be read only."""
        return self._places[: self._count]

    def add(self, places: Ints) -> None:
        self._places[self._count : self._count + len(places)] = places
        self._count += len(places)

    def take(self, at: Ints) -> Ints:
        """Take out those at some distinct indices; the last ones fill the holes."""
        taken = self._places[at].copy()
        left = self._count - len(at)
        holes = at[at < left]
        last = np.ones(len(at), bool)
        last[at[at >= left] - left] = False
        self._places[holes] = self._places[left : self._count][last]
        self._count = left
        return taken
