"""Makes each rank's part of a round: one rank settles what the round is, and posts it for the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from superbatch.errors import SuperbatchError
from superbatch.source import Filled, Slot
from superbatch.stream import fetching
from superbatch.stream.dealing import Dealer
from superbatch.stream.entry import Reader
from superbatch.stream.fetching import Counts, Fetcher
from superbatch.stream.following import Following
from superbatch.stream.meeting import Group, Meeting


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
    latest : bool
        Always the newest batch, passing over those before it.
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
        latest: bool,
        timeout: float,
        state: Mapping[str, Any] | None,
    ) -> None:
        self._reader, self._follow, self._fetcher, self._staging = reader, follow, fetcher, staging
        self._batches, self._group, self._whole, self._latest = batches, group, whole, latest
        self._meeting = Meeting(reader, group, timeout)
        state = state or {}
        self._following = follow(state.get("stream"))
        self._dealt = state.get("dealt")

    def make(self, index: int, slot: Slot) -> Filled:
        """Wait for the next round, and fetch this rank's part of it."""
        group, counts = self._group, Counts()
        topic = f"{group.name}/{index}"
        round_ = json.loads(
            self._meeting.settled(
                topic, lambda: json.dumps(self._settle(index)), f"rank 0 to settle round {index}"
            )
        )
        if group.rank == 0 and round_["stream"] != self._following.state():
            # settled by a loader that has died since
            self._following = self._follow(round_["stream"])
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
            counts.gaps, counts.skipped = round_["gaps"], round_["skipped"]
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
        gaps, skipped, last = following.gaps, 0, False
        while not dealer.complete:
            what = f"a batch that completes round {index}"
            if self._latest:
                entry, skipped = following.newest(what=what)
            else:
                entry = following.next(what=what)
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
            "skipped": skipped,
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
        have = len(sizes) if self._whole else sum(sizes)
        least = self._meeting.least(topic, have, "to fetch its part of a round")
        if self._whole:
            return sizes[:least]
        return [least] if least else []
