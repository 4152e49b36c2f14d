"""Makes each rank's superbatches out of a reservoir of its own; all of them fill and empty in step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from superbatch.errors import SuperbatchError
from superbatch.source import Filled, Slot
from superbatch.stream import fetching
from superbatch.stream.dealing import Dealer, Share
from superbatch.stream.entry import Reader
from superbatch.stream.fetching import Counts, Fetcher, Shape
from superbatch.stream.fill_reservoir import ReservoirMaker
from superbatch.stream.following import Following
from superbatch.stream.meeting import Group, Meeting
from superbatch.stream.reservoir import Reservoir

# Batches that are dealt out at a time: all that are there.
_ALL = 2**40


class ReservoirShareMaker(ReservoirMaker):
    """Makes superbatches in order, equally many batches on each rank.

    Rank 0 says what comes in and who gets which part of it. Each rank takes in as many samples as the one that
    got the fewest, into a reservoir of its own, and all use the same random numbers. So each reservoir holds
    as many samples, as many of them unseen, as any other, at each moment: other samples, in the same places.
    No rank runs out of samples before another, and none has to ask how full the others are.

    Parameters
    ----------
    reader : Reader
    follow : callable
        ``follow(state)``: the producers, from where the stream stood.
    fetcher : Fetcher
    shape : Shape
    reservoir : Reservoir
        Of each rank.
    group : Group
    draws, whole, seed : as for ReservoirMaker
    timeout : float
        Seconds to wait for the other ranks.
    state : mapping, optional

    Raises
    ------
    SuperbatchError
        Some of what the state held is not on the server any more: this rank would fall out of step.
    """

    def __init__(
        self,
        reader: Reader,
        follow: Callable[[Any], Following],
        fetcher: Fetcher,
        shape: Shape,
        reservoir: Reservoir,
        group: Group,
        *,
        draws: Sequence[int],
        whole: bool,
        seed: int,
        timeout: float,
        state: Mapping[str, Any] | None,
    ) -> None:
        self._reader, self._follow, self._group = reader, follow, group
        self._meeting = Meeting(reader, group, timeout)
        known = state or {}
        self._at = known.get("stream")
        self._dealt, self._ended = known.get("dealt"), bool(known.get("over"))
        super().__init__(
            follow(self._at),
            fetcher,
            shape,
            reservoir,
            draws=draws,
            whole=whole,
            seed=seed,
            rank=0,  # the same random numbers on all
            state=state,
        )
        if lost := self._counts.evicted + self._counts.torn:
            raise SuperbatchError(
                f"{lost} batches that the reservoir of rank {group.rank} held are not on the server any more, so "
                f"that the ranks would make different numbers of steps: keep more there (the producers' retention), "
                f"or begin without the state"
            )

    def take_in_meanwhile(self, index: int) -> None:
        """Nothing: what comes in is settled by all ranks together, when they draw."""

    def again(self, state: Mapping[str, Any], slot: Slot) -> Filled:
        """A superbatch that was made before.

        Raises
        ------
        SuperbatchError
            Some of it is not on the server any more.
        """
        filled = super().again(state, slot)
        lost = sum(state["sizes"]) - filled.samples
        if lost:
            raise SuperbatchError(
                f"the superbatch that the state is in the middle of cannot be made again: {lost} of its samples "
                f"are not on the server any more; keep more there (the producers' retention)"
            )
        return filled

    @property
    def _over(self) -> bool:
        return self._ended

    def _stream(self) -> dict[str, Any]:
        return dict(self._at or {})

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "dealt": self._dealt, "over": self._ended}

    def _take_in(self, index: int, rng: np.random.Generator, counts: Counts) -> None:
        """Insert what rank 0 deals out, until there is enough, or nothing comes any more."""
        attempt = 0
        while not self._ended:
            topic = f"{self._group.name}/{index}/{attempt}"
            posted = self._meeting.settled(
                topic,
                lambda: json.dumps(self._settle()),
                f"rank 0 to deal out batches for superbatch {index}",
            )
            intake = json.loads(posted)
            if self._group.rank == 0 and intake["stream"] != self._following.state():
                # settled by a loader that has died since
                self._following = self._follow(intake["stream"])
                self._gaps = self._following.gaps
            self._at, self._dealt, self._ended = intake["stream"], intake["dealt"], intake["over"]
            self._insert_share(topic, intake["shares"][self._group.rank], rng, counts)
            if self._group.rank == 0:
                for producer, run, number, *_ in intake["names"]:
                    self._reader.taken(producer, run, number)
            attempt += 1
            if len(self._pool) >= self._watermark:
                return

    def _settle(self) -> dict[str, Any]:
        """What comes in, and who gets which part of it; waits as one rank alone would."""
        group, following = self._group, self._following
        dealer = Dealer(group.assign, _ALL, group.world_size, self._dealt)
        coming = 0
        while (entry := self._next(coming)) is not None:
            tried = Dealer(group.assign, _ALL, group.world_size, dealer.state())
            tried.add(fetching.name(entry))
            needs = [self._places(share) for share in tried.deal()]
            if max(needs) > self._pool.room:
                following.give_back(entry)
                break
            dealer.add(fetching.name(entry))
            coming = min(needs)
        else:
            if not following.over:
                following.check_alive()
        shares = dealer.deal()
        return {
            "shares": shares,
            "names": list({tuple(name): None for share in shares for name, _, _ in share}),
            "stream": following.state(),
            "dealt": dealer.state(),
            "over": following.over,
        }

    def _places(self, share: Share) -> int:
        """How many places of a reservoir a share takes."""
        return len(share) if self._whole else sum(end - begin for _, begin, end in share)

    def _insert_share(
        self, topic: str, share: Share, rng: np.random.Generator, counts: Counts
    ) -> None:
        """Fetch a share, and insert as much of it as every rank has got."""
        fetched = []
        for name, begin, end in share:
            if self._fetcher.fetch(self._fetcher.entry(name), self._staging, counts):
                part = {field: staged[begin:end].copy() for field, staged in self._staging.items()}
                fetched.append((name, begin, end, part))
        have = self._places([[name, begin, end] for name, begin, end, _ in fetched])
        left = self._meeting.least(topic, have, "to fetch its part of what has come in")
        for name, begin, end, part in fetched:
            if not left:
                return
            size = 1 if self._whole else min(left, end - begin)
            left -= size
            rows = (begin, end) if self._whole else (begin, begin + size)
            self._insert(list(name), part, rows, self._pool.insert(size, rng))
