"""Makes superbatches out of a reservoir that is held in the loader's memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch import seeds
from superbatch.source import Filled, Slot
from superbatch.stream import fetching
from superbatch.stream.fetching import Counts, Fetcher, Shape
from superbatch.stream.following import Following
from superbatch.stream.reservoir import Pool, Reservoir

Ints = npt.NDArray[np.int64]

# Seconds between two looks at what came, while no superbatch is asked for.
_MEANWHILE = 0.05


class ReservoirMaker:
    """Makes superbatches in order.

    Parameters
    ----------
    following : Following
    fetcher : Fetcher
    shape : Shape
    reservoir : Reservoir
    batch, draws : int
        Samples in a batch, and batches in a superbatch.
    whole : bool
        Whether the producers' batches are drawn as a whole.
    seed, rank : int
    """

    def __init__(
        self,
        following: Following,
        fetcher: Fetcher,
        shape: Shape,
        reservoir: Reservoir,
        *,
        draws: Sequence[int],
        whole: bool,
        seed: int,
        rank: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._following, self._fetcher, self._buffer = following, fetcher, reservoir
        self._draws, self._whole, self._seed, self._rank = draws, whole, seed, rank
        rows = shape.largest if whole else 1  # of a place
        self._pool = Pool(reservoir.capacity // rows)
        self._watermark = -(-reservoir.watermark // rows)
        self._held = fetching.memory(shape, self._pool.capacity * rows)
        self._rows = rows
        self._staging = fetching.memory(shape, shape.largest)
        # By place: which batch it came from (-1: it is empty), which row of it, how many rows, and when they were put.
        self._batch = np.full(self._pool.capacity, -1, np.int64)
        self._row, self._size = (np.zeros(self._pool.capacity, np.int64) for _ in range(2))
        self._put = np.zeros(self._pool.capacity)
        self._names: dict[int, fetching.Name] = {}  # of batches that something is held of
        self._left: dict[int, int] = {}  # places that are held of them
        self._next_name = 0
        self._counts = Counts()  # since the latest superbatch
        self._rng: tuple[int, np.random.Generator] | None = None
        self._gaps = following.gaps
        if state is not None:
            self._restore(state)

    def make(self, index: int, slot: Slot) -> Filled:
        """Take in what there is, and draw."""
        rng = self._random(index)
        self._take_in(index, rng, self._counts)
        counts, self._counts = self._counts, Counts()
        over = self._over
        used, drawn = 0, []
        sizes: list[int] = []
        for number in self._draws:
            places = self._pool.draw(number, rng, remove=over)
            if not len(places):
                break
            size = self._copy_out(places, slot, used, counts)
            sizes += self._size[places].tolist() if self._whole else [size]
            drawn.append(places)
            used += size
        all_drawn = np.concatenate([*drawn, np.empty(0, np.int64)])
        made = {"names": list(self._names.items()), "origins": self._origins(all_drawn)}
        if over:
            self._forget(all_drawn)
        counts.gaps, self._gaps = self._following.gaps - self._gaps, self._following.gaps
        last = over and not len(self._pool)
        return Filled(
            samples=used,
            sizes=tuple(sizes) or None,
            last=last,
            state={
                "drawn": made,
                "sizes": sizes,
                "last": last,
                **self._state(),
            },
            extra=counts.extra(),
        )

    def take_in_meanwhile(self, index: int) -> float | None:
        """Take in a batch, if one has come, while superbatch ``index`` is not asked for yet.

        What is drawn is the same whether it came in now or when it is asked for.

        Returns
        -------
        float or None
            Seconds until there may be more to do.
        """
        if self._over:
            return None
        taken = self._insert_next(self._random(index), self._counts, wait=False)
        return 0.0 if taken else _MEANWHILE

    def again(self, state: Mapping[str, Any], slot: Slot) -> Filled:
        """A superbatch that was made before, from what is on the server still; what is gone is left out."""
        counts = Counts()
        names, origins = dict(state["drawn"]["names"]), _table(state["drawn"]["origins"])
        ends = np.cumsum(origins[:, 2])
        gone = np.zeros(origins[:, 2].sum(), bool)
        for number in np.unique(origins[:, 0]).tolist():
            entry = self._fetcher.entry(names[number])
            there = self._fetcher.fetch(entry, self._staging, counts)
            of = origins[:, 0] == number
            for (_, row, size), end in zip(origins[of].tolist(), ends[of].tolist(), strict=True):
                gone[end - size : end] = not there
                for field, array in slot.items() if there else ():
                    array[end - size : end] = self._staging[field][row : row + size]
        keep = np.flatnonzero(~gone)
        if len(keep) < len(gone):
            for array in slot.values():
                array[: len(keep)] = array[keep]
        ends = np.cumsum(state["sizes"], dtype=np.int64)
        sizes = [int((~gone[e - s : e]).sum()) for e, s in zip(ends, state["sizes"], strict=True)]
        return Filled(
            samples=len(keep), sizes=tuple(sizes) or None, last=state["last"], state=state, extra={}
        )

    @property
    def _over(self) -> bool:
        """Whether nothing comes any more."""
        return self._following.over

    def _take_in(self, index: int, rng: np.random.Generator, counts: Counts) -> None:
        """Insert what is there; wait while too little is held, or too much would have been served."""
        while self._insert_next(rng, counts, wait=True):
            pass

    def _insert_next(self, rng: np.random.Generator, counts: Counts, *, wait: bool) -> bool:
        """Insert the next batch; False where there is none, or no room for it."""
        pool, following = self._pool, self._following
        entry = self._next(0) if wait else following.next(wait=False)
        if entry is None:
            if wait and not following.over:
                following.check_alive()
            return False
        need = 1 if self._whole else entry.samples
        if need > pool.room:
            following.give_back(entry)
            return False  # what is drawn next makes room
        if self._fetcher.fetch(entry, self._staging, counts):
            rows = (0, entry.samples)
            self._insert(fetching.name(entry), self._staging, rows, pool.insert(need, rng))
        self._fetcher.taken(entry)
        return True

    def _random(self, index: int) -> np.random.Generator:
        """The random numbers of a superbatch, and of what comes in before it is drawn."""
        if self._rng is None or self._rng[0] != index:
            self._rng = index, seeds.generator(self._seed, "reservoir", index, self._rank)
        return self._rng[1]

    def _next(self, coming: int) -> Any:
        """The next batch; waits for it where too little is held, with so many places that are sure to be filled.

        None where there is none, and enough is held.
        """
        held = min(len(self._pool) + coming, self._pool.capacity)
        low = held < self._watermark
        what = f"a batch (as many samples as ratio={self._buffer.ratio} allows were served)"
        if low:
            what = f"a batch (the reservoir holds {held * self._rows}, watermark={self._buffer.watermark})"
        return self._following.next(wait=low or self._ahead(coming), what=what)

    def _ahead(self, coming: int) -> bool:
        """Whether as much was served as the ratio allows."""
        if self._buffer.ratio is None:
            return False
        wanted = self._pool.drawn + sum(self._draws)
        return wanted > self._buffer.ratio * (self._pool.inserted + coming)

    def _insert(
        self,
        name: fetching.Name,
        staged: Mapping[str, npt.NDArray[Any]],
        rows: tuple[int, int],
        places: Ints,
    ) -> None:
        """Hold some rows of a batch, which lie at the beginning of ``staged``."""
        begin, end = rows
        number, self._next_name = self._next_name, self._next_name + 1
        self._forget(places[self._batch[places] >= 0])
        self._batch[places], self._put[places] = number, name[4]
        self._row[places] = begin + np.arange(len(places))
        self._size[places] = end - begin if self._whole else 1
        for field, held in self._held.items():
            if self._whole:
                at = places[0] * self._rows
                held[at : at + end - begin] = staged[field][: end - begin]
            else:
                held[places] = staged[field][: end - begin]
        self._names[number], self._left[number] = name, len(places)

    def _forget(self, places: Ints) -> None:
        """Nothing is held in these places any more."""
        numbers, counts = np.unique(self._batch[places], return_counts=True)
        self._batch[places] = -1
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._left[number] -= count
            if not self._left[number]:
                del self._left[number], self._names[number]

    def _copy_out(self, places: Ints, slot: Slot, to: int, counts: Counts) -> int:
        """Write what some places hold into a slot; how many rows that is."""
        sizes = self._size[places]
        for name, array in slot.items():
            held = self._held[name]
            if not self._whole:
                np.take(held, places, axis=0, out=array[to : to + len(places)], mode="clip")
                continue
            row = to
            for place, size in zip(places.tolist(), sizes.tolist(), strict=True):
                at = place * self._rows
                array[row : row + size] = held[at : at + size]
                row += size
        counts.samples += int(sizes.sum())
        counts.age += float(sizes @ np.maximum(0.0, time.time() - self._put[places]))
        return int(sizes.sum())

    def _origins(self, places: Ints) -> list[npt.NDArray[Any]]:
        """Of some places: the batch that each came from, which row of it, and how many rows."""
        return [_packed(of[places]) for of in (self._batch, self._row, self._size)]

    def _state(self) -> dict[str, Any]:
        """What is held, and where the stream stands."""
        seen, unseen = self._pool.seen, self._pool.unseen
        return {
            "names": list(self._names.items()),
            "seen": [_packed(seen), self._origins(seen)],
            "unseen": [_packed(unseen), self._origins(unseen)],
            "inserted": self._pool.inserted,
            "counted": self._pool.drawn,
            "stream": self._stream(),
        }

    def _stream(self) -> dict[str, Any]:
        """Where the stream stands."""
        return self._following.state()

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Fetch again what was held; what is gone from the server is left out."""
        parts = [
            (np.asarray(state[part][0], np.int64), _table(state[part][1]))
            for part in ("seen", "unseen")
        ]
        places = np.concatenate([places for places, _ in parts])
        origins = np.concatenate([origins for _, origins in parts])
        names = dict(state["names"])
        counts, there = self._counts, []
        for number in np.unique(origins[:, 0]).tolist():
            name = names[number]
            if not self._fetcher.fetch(self._fetcher.entry(name), self._staging, counts):
                continue
            there.append(number)
            of = origins[:, 0] == number
            into = places[of]
            self._names[number], self._left[number] = name, len(into)
            self._batch[into], self._put[into] = number, name[4]
            self._row[into], self._size[into] = origins[of, 1], origins[of, 2]
            for field, held in self._held.items():
                for place, (_, row, size) in zip(into.tolist(), origins[of].tolist(), strict=True):
                    at = place * self._rows
                    held[at : at + size] = self._staging[field][row : row + size]
        self._next_name = 1 + max(names, default=-1)
        # They came in before; what is told is what was lost.
        counts.batches = counts.nbytes = 0
        seen, unseen = (found[np.isin(origins[:, 0], there)] for found, origins in parts)
        self._pool.restore(seen, unseen, state["inserted"], state["counted"])


def _packed(numbers: Ints) -> npt.NDArray[Any]:
    """In as few bytes as they need: with each superbatch they go through a pipe."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _table(columns: Any) -> Ints:
    """Columns of numbers, as arrays or as lists, side by side."""
    return np.stack([np.asarray(column, np.int64) for column in columns], axis=1)
