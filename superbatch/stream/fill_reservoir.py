"""Makes superbatches out of a reservoir that is held in the loader's memory."""

from __future__ import annotations

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
        # By place: which batch it came from, which row of it, and how many rows.
        self._origin: list[tuple[int, int]] = [(-1, 0)] * self._pool.capacity
        self._sizes = [0] * self._pool.capacity
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
        used, sizes, drawn = 0, [], []
        for number in self._draws:
            places = self._pool.draw(number, rng, remove=over)
            size = 0
            for place in places:
                size += self._copy_out(place, slot, used + size, counts)
                name, row = self._origin[place]
                drawn.append([*self._names[name], row, self._sizes[place]])
                if over:
                    self._forget(place)
            if size:
                sizes += [self._sizes[p] for p in places] if self._whole else [size]
            used += size
        counts.gaps, self._gaps = self._following.gaps - self._gaps, self._following.gaps
        last = over and not len(self._pool)
        return Filled(
            samples=used,
            sizes=tuple(sizes) or None,
            last=last,
            state={"drawn": drawn, "sizes": sizes, "last": last, **self._state()},
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
        places: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
        at = 0
        for *name, row, size in state["drawn"]:
            places.setdefault(tuple(name), []).append((at, row, size))
            at += size
        gone = np.zeros(at, bool)
        for named, wanted in places.items():
            entry = self._fetcher.entry(list(named))
            there = self._fetcher.fetch(entry, self._staging, counts)
            for to, row, size in wanted:
                gone[to : to + size] = not there
                for field, array in slot.items() if there else ():
                    array[to : to + size] = self._staging[field][row : row + size]
        keep = np.flatnonzero(~gone)
        if len(keep) < at:
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
        places: list[int],
    ) -> None:
        """Hold some rows of a batch, which lie at the beginning of ``staged``."""
        begin, end = rows
        number, self._next_name = self._next_name, self._next_name + 1
        for row, place in enumerate(places, start=begin):
            if self._origin[place][0] >= 0:
                self._forget(place)
            self._origin[place] = number, row
            self._sizes[place] = end - begin if self._whole else 1
        for field, held in self._held.items():
            if self._whole:
                at = places[0] * self._rows
                held[at : at + end - begin] = staged[field][: end - begin]
            else:
                held[places] = staged[field][: end - begin]
        self._names[number], self._left[number] = name, len(places)

    def _forget(self, place: int) -> None:
        number = self._origin[place][0]
        self._origin[place] = (-1, 0)
        self._left[number] -= 1
        if not self._left[number]:
            del self._left[number], self._names[number]

    def _copy_out(self, place: int, slot: Slot, to: int, counts: Counts) -> int:
        at, size = place * self._rows, self._sizes[place]
        for name, array in slot.items():
            array[to : to + size] = self._held[name][at : at + size]
        fetching.served(counts, size, self._names[self._origin[place][0]][4])
        return size

    def _state(self) -> dict[str, Any]:
        """What is held, and where the stream stands: plain data."""
        numbers = {number: i for i, number in enumerate(self._names)}
        origin = self._origin

        def held(places: list[int]) -> list[list[int]]:
            return [[p, numbers[origin[p][0]], origin[p][1], self._sizes[p]] for p in places]

        return {
            "names": list(self._names.values()),
            "seen": held(self._pool.seen),
            "unseen": held(self._pool.unseen),
            "inserted": self._pool.inserted,
            "counted": self._pool.drawn,
            "stream": self._stream(),
        }

    def _stream(self) -> dict[str, Any]:
        """Where the stream stands."""
        return self._following.state()

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Fetch again what was held; what is gone from the server is left out."""
        by_name: dict[int, list[tuple[int, int, int]]] = {}
        for place, number, row, size in [*state["seen"], *state["unseen"]]:
            by_name.setdefault(number, []).append((place, row, size))
        counts, there = self._counts, set()
        for number, wanted in by_name.items():
            entry = self._fetcher.entry(state["names"][number])
            if not self._fetcher.fetch(entry, self._staging, counts):
                continue
            there.add(number)
            self._names[number], self._left[number] = state["names"][number], len(wanted)
            for place, row, size in wanted:
                self._origin[place], self._sizes[place] = (number, row), size
                at = place * self._rows
                for name, held in self._held.items():
                    held[at : at + size] = self._staging[name][row : row + size]
        self._next_name = 1 + max(by_name, default=-1)
        # They came in before; what is told is what was lost.
        counts.batches = counts.nbytes = 0
        self._pool.restore(
            [place for place, number, *_ in state["seen"] if number in there],
            [place for place, number, *_ in state["unseen"] if number in there],
            state["inserted"],
            state["counted"],
        )
