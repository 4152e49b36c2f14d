"""Makes each rank's part of a round: one rank settles what the round is, and posts it for the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from superbatch.errors import SuperbatchError
from superbatch.source import Filled, Slot
from superbatch.stream import fetching
from superbatch.stream.dealing import Dealer
from superbatch.stream.entry import Reader
from superbatch.stream.fetching import Counts, Fetcher
from superbatch.stream.following import Following


@dataclass(frozen=True)
class Group:
    """Ranks that share a stream.

    Attributes
    ----------
    name : str
        Of this run, the same on all ranks.
    rank, world_size : int
    assign : str
    """

    name: str
    rank: int
    world_size: int
    assign: str


class ShareMaker:
    """Makes superbatches in order, equally many batches on each rank.

    Parameters
    ----------
    reader : Reader
    follow : callable
        ``follow(state)``: the producers, from where the stream stood.
    fetcher : Fetcher
    staging : mapping of str to array
        Room for one batch.
    batches : int
        In a round, over all ranks.
    group : Group
    whole : bool
        Whether batches are served as they were put.
    timeout : float
        Seconds to wait for the other ranks.
    state : mapping, optional
    """

    def __init__(
        self,
        reader: Reader,
        follow: Callable[[Any], Following],
        fetcher: Fetcher,
        staging: Mapping[str, npt.NDArray[Any]],
        batches: int,
        group: Group,
        *,
        whole: bool,
        timeout: float,
        state: Mapping[str, Any] | None,
    ) -> None:
        self._reader, self._follow, self._fetcher, self._staging = reader, follow, fetcher, staging
        self._batches, self._group, self._whole, self._timeout = batches, group, whole, timeout
        state = state or {}
        self._following = follow(state.get("stream"))
        self._dealt = state.get("dealt")

    def make(self, index: int, slot: Slot) -> Filled:
        """Wait for the next round, and fetch this rank's part of it."""
        group, counts = self._group, Counts()
        topic = f"{group.name}/{index}"
        posted = self._reader.posted(topic, 0.0)
        if group.rank == 0 and posted is None:
            posted = json.dumps(self._settle(index))
            self._reader.post(topic, posted)
        elif group.rank == 0 and posted is not None:  # by a loader that has died since
            self._following = self._follow(json.loads(posted)["stream"])
        elif posted is None:
            posted = self._wait(topic, f"rank 0 to settle round {index}")
        round_ = json.loads(posted)
        self._dealt = round_["dealt"]
        sizes, used, made = [], 0, []
        for name, begin, end in round_["shares"][group.rank]:
            size = self._fetch(name, begin, end, slot, used, counts)
            if size:
                fetching.served(counts, size, name[4])
                made.append([name, begin, end])
                sizes.append(size)
                used += size
        # A batch may be gone on one rank alone: all go on with as many as the one that has the fewest.
        sizes = self._equal(topic, sizes)
        if group.rank == 0:
            for producer, run, number, *_ in round_["names"]:
                self._reader.taken(producer, run, number)
            counts.gaps, counts.skipped = round_["gaps"], 0
            counts.rounds = bool(sizes)
        used = sum(sizes)
        return Filled(
            samples=used,
            sizes=tuple(sizes) if self._whole and sizes else None,
            last=round_["last"],
            state={
                "made": made,
                "sizes": sizes,
                "last": round_["last"],
                "stream": round_["stream"],
                "dealt": round_["dealt"],
            },
            extra=counts.extra() | {"left": float(round_["left"]) if group.rank == 0 else 0.0},
        )

    def again(self, state: Mapping[str, Any], slot: Slot) -> Filled:
        """Fetch a part that was made before.

        Raises
        ------
        SuperbatchError
            Some of it is not on the server any more: ranks would make different numbers of steps.
        """
        counts, used = Counts(), 0
        for name, begin, end in state["made"]:
            size = self._fetch(name, begin, end, slot, used, counts)
            if not size:
                raise SuperbatchError(
                    f"the round that the state is in the middle of cannot be made again: batch {name[2]} of "
                    f"producer {name[0]!r} is not on the server any more; keep more there (the producers' "
                    f"retention), or take states between rounds"
                )
            used += size
        sizes = state["sizes"]
        return Filled(
            samples=sum(sizes),
            sizes=tuple(sizes) if self._whole and sizes else None,
            last=state["last"],
            state=state,
        )

    def _settle(self, index: int) -> dict[str, Any]:
        """Wait for a round's batches, and say who gets which."""
        group, following = self._group, self._following
        dealer = Dealer(group.assign, self._batches, group.world_size, self._dealt)
        gaps, last = following.gaps, False
        while not dealer.complete:
            entry = following.next(what=f"a batch that completes round {index}")
            if entry is None:
                last = True
                break
            dealer.add(fetching.name(entry))
        shares = dealer.deal()
        names = {tuple(name): None for share in shares for name, _, _ in share}
        return {
            "shares": shares,
            "names": list(names),
            "last": last,
            "left": dealer.left if last else 0,
            "gaps": following.gaps - gaps,
            "stream": following.state(),
            "dealt": dealer.state(),
        }

    def _fetch(self, name: Any, begin: int, end: int, slot: Slot, row: int, counts: Counts) -> int:
        """Bring some rows of a batch into a slot; how many."""
        size = end - begin
        entry = self._fetcher.entry(name)
        if size == entry.samples:
            into = {field: array[row:] for field, array in slot.items()}
            return size if self._fetcher.fetch(entry, into, counts) else 0
        if not self._fetcher.fetch(entry, self._staging, counts):
            return 0
        for field, array in slot.items():
            array[row : row + size] = self._staging[field][begin:end]
        return size

    def _equal(self, topic: str, sizes: list[int]) -> list[int]:
        """Cut what this rank has to what every rank has."""
        group = self._group
        have = len(sizes) if self._whole else sum(sizes)
        self._reader.post(f"{topic}/{group.rank}", str(have))
        least = min(
            int(self._wait(f"{topic}/{rank}", f"rank {rank} to fetch its part of a round"))
            for rank in range(group.world_size)
        )
        if self._whole:
            return sizes[:least]
        return [least] if least else []

    def _wait(self, topic: str, what: str) -> str:
        deadline = time.monotonic() + self._timeout
        while (left := deadline - time.monotonic()) > 0:
            posted = self._reader.posted(topic, min(left, 1.0))
            if posted is not None:
                return posted
        raise SuperbatchError(
            f"rank {self._group.rank} waited timeout={self._timeout:g} s for {what}: look whether that rank is alive, "
            f"or raise timeout="
        )
