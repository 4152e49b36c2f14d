"""A stream that is bound to one dataset, and is sent to its loader; and what runs there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from superbatch.errors import SuperbatchError
from superbatch.source import Fields, Filled, Late, Settings, Slot, State
from superbatch.stream.entry import Reader
from superbatch.stream.fetching import Fetcher, Shape, memory
from superbatch.stream.fill_reservoir import ReservoirMaker
from superbatch.stream.fill_reservoir_shares import ReservoirShareMaker
from superbatch.stream.fill_rounds import RoundMaker
from superbatch.stream.fill_shares import ShareMaker
from superbatch.stream.following import Following
from superbatch.stream.meeting import Group
from superbatch.stream.reservoir import Reservoir
from superbatch.stream.rounds import Rounds
from superbatch.stream.timed import TimedReader

# The part of a reservoir that is drawn before new samples are looked for.
_PART = 16


@dataclass
class StreamFeed:
    """A ``StreamSource`` bound to one dataset."""

    address: Any
    connect: Callable[..., Reader]
    producers: str | Sequence[str]
    buffer: Rounds | Reservoir
    latest: bool
    expect: int
    timeout: float
    silence: float
    shape: Shape
    settings: Settings
    group: Group | None = None
    index: int = -1  # the superbatch that `state` is of
    state: State | None = None

    drops = False
    continues = True

    @property
    def fields(self) -> Fields:
        """The arrays of one sample."""
        return self.shape.fields

    @property
    def labels(self) -> Mapping[str, npt.NDArray[Any]]:
        """None."""
        return {}

    @property
    def scales(self) -> Mapping[str, Late]:
        """None."""
        return {}

    @property
    def whole(self) -> bool:
        """Whether batches are served as they were put."""
        return self.settings.batch_size is None

    @property
    def draws(self) -> list[int]:
        """Of a reservoir: what is drawn for each batch of a superbatch."""
        assert isinstance(self.buffer, Reservoir)
        size = self.settings.batch_size or self.shape.largest
        wanted = self.buffer.superbatch or self.buffer.capacity // _PART
        return [self.settings.batch_size or 1] * max(1, wanted // size)

    @property
    def samples(self) -> int:
        """Rows of a slot."""
        if isinstance(self.buffer, Rounds):
            return self.buffer.batches * self.shape.largest
        return sum(self.draws) * (self.shape.largest if self.whole else 1)

    def superbatches(self, epoch: int) -> None:
        """Nobody knows."""

    def batches(self, epoch: int, index: int) -> int:
        """One at the least."""
        return 1

    def batch_sizes(self, epoch: int, index: int, samples: int) -> Sequence[int]:
        """Full batches, and what is left."""
        size = self.settings.batch_size
        if size is None:
            return [samples]
        return [size] * (samples // size) + ([samples % size] if samples % size else [])

    def epoch_batches(self) -> None:
        """Nobody knows."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What has to be equal for a state to be resumed exactly."""
        settings = self.settings
        return {
            "producers": self.producers,
            "buffer": repr(self.buffer),
            "latest": self.latest,
            "batch_size": settings.batch_size,
            "shuffle": settings.shuffle,
            "seed": settings.seed,
            "rank": settings.rank,
            "world_size": settings.world_size,
        }

    @property
    def may_change(self) -> Collection[str]:
        """Ranks may come and go between rounds; each reservoir is that of a rank."""
        return ("rank", "world_size") if isinstance(self.buffer, Rounds) else ()

    def resume(self, index: int, state: State) -> None:
        """Take in what superbatch ``index`` was made of."""
        self.index, self.state = index, state or None

    def descriptors(self) -> list[int]:
        """None: a loader connects by itself."""
        return []

    def open(self) -> StreamFiller:
        """Called once, in the loader process."""
        return StreamFiller(self)


class StreamFiller:
    """Makes superbatches, one after the other."""

    def __init__(self, feed: StreamFeed) -> None:
        self._reader = TimedReader(feed.connect(feed.address, timeout=feed.timeout))
        self._index, self._state = feed.index, feed.state

        def follow(state: Any) -> Following:
            return Following(
                self._reader,
                feed.producers,
                expect=feed.expect,
                timeout=feed.timeout,
                silence=feed.silence,
                state=state,
            )

        following = follow(None if feed.state is None else feed.state["stream"])
        fetcher = Fetcher(self._reader, feed.shape)
        self._maker: RoundMaker | ReservoirMaker | ShareMaker
        if isinstance(feed.buffer, Rounds) and feed.group is not None:
            self._maker = ShareMaker(
                self._reader,
                follow,
                fetcher,
                memory(feed.shape, feed.shape.largest),
                feed.buffer.batches,
                feed.group,
                whole=feed.whole,
                latest=feed.latest,
                timeout=feed.timeout,
                state=feed.state,
            )
        elif isinstance(feed.buffer, Rounds):
            self._maker = RoundMaker(
                following,
                fetcher,
                feed.buffer.batches,
                whole=feed.whole,
                latest=feed.latest,
                state=feed.state,
            )
        elif feed.group is not None:
            self._maker = ReservoirShareMaker(
                self._reader,
                follow,
                fetcher,
                feed.shape,
                feed.buffer,
                feed.group,
                draws=feed.draws,
                whole=feed.whole,
                seed=feed.settings.seed,
                timeout=feed.timeout,
                state=feed.state,
            )
        else:
            self._maker = ReservoirMaker(
                following,
                fetcher,
                feed.shape,
                feed.buffer,
                draws=feed.draws,
                whole=feed.whole,
                seed=feed.settings.seed,
                rank=feed.settings.rank,
                state=feed.state,
            )

    def start(self, epoch: int, index: int, slot: Slot) -> StreamFilling:
        """What comes next is known when the one before is made."""
        return StreamFilling(self, index, slot)

    def make(self, index: int, slot: Slot) -> Filled:
        """Make the next superbatch, or the one that the state is of."""
        began, reader = time.monotonic(), self._reader
        waited, fetched = reader.wait_seconds, reader.fetch_seconds
        if self._state is not None and index == self._index:
            filled = self._maker.again(self._state, slot)
        elif index == self._index + 1:
            self._index, self._state = index, None
            filled = self._maker.make(index, slot)
        else:
            raise SuperbatchError(
                f"superbatch {index} of a stream was asked for after {self._index}: a stream goes on, and does not "
                f"go back; make a new dataset, or load a state"
            )
        filled.began, filled.ended = began, time.monotonic()
        filled.load_seconds = filled.ended - began
        filled.extra["wait_seconds"] = reader.wait_seconds - waited
        filled.extra["fetch_seconds"] = reader.fetch_seconds - fetched
        return filled

    def idle(self) -> float | None:
        """Take in what comes meanwhile, where a buffer holds more than the superbatch that is next."""
        if not isinstance(self._maker, ReservoirMaker):
            return None
        return self._maker.take_in_meanwhile(self._index + 1)

    def stuck(self) -> None:
        """Waits have deadlines of their own."""

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


@dataclass(frozen=True)
class StreamFilling:
    """A superbatch that is made when it is waited for."""

    filler: StreamFiller
    index: int
    slot: Slot

    def finish(self) -> Filled:
        """Make it."""
        return self.filler.make(self.index, self.slot)
