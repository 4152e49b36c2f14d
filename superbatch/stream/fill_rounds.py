"""Makes a superbatch of each round: the batches are fetched straight into its slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from superbatch.errors import SuperbatchError
from superbatch.source import Filled, Slot
from superbatch.stream import fetching
from superbatch.stream.entry import Entry
from superbatch.stream.fetching import Counts, Fetcher
from superbatch.stream.following import Following


class RoundMaker:
    """Makes superbatches in order.

    Parameters
    ----------
    following : Following
    fetcher : Fetcher
    batches : int
        In a round.
    whole : bool
        Whether batches are served as they were put.
    latest : bool
        Whether only the newest batch counts.
    state : mapping, optional
        What several ranks held over for their next round, if it is theirs, comes first.
    """

    def __init__(
        self,
        following: Following,
        fetcher: Fetcher,
        batches: int,
        *,
        whole: bool,
        latest: bool,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        _, held, _ = (state or {}).get("dealt") or ([], [], 1)
        self._held: deque[fetching.Name] = deque(held)
        self._following, self._fetcher, self._batches = following, fetcher, batches
        self._whole, self._latest = whole, latest
        self._gaps = following.gaps

    def make(self, index: int, slot: Slot) -> Filled:
        """Wait for the next round, and fetch it."""
        counts, used = Counts(), 0
        made: list[fetching.Name] = []
        sizes: list[int] = []
        last = False
        while len(sizes) < self._batches:
            what = f"batch {len(sizes) + 1} of {self._batches} of round {index}"
            entry: Entry | None
            if self._held:
                entry = self._fetcher.entry(self._held.popleft())
            elif self._latest:
                entry, skipped = self._following.newest(what=what)
                counts.skipped += skipped
            else:
                entry = self._following.next(what=what)
            if entry is None:
                last = True
                break
            if self._fetcher.fetch(entry, _from(slot, used), counts):
                fetching.served(counts, entry.samples, entry.time)
                made.append(fetching.name(entry))
                sizes.append(entry.samples)
                used += entry.samples
            self._fetcher.taken(entry)
        counts.gaps, self._gaps = self._following.gaps - self._gaps, self._following.gaps
        counts.rounds = bool(sizes)
        return Filled(
            samples=used,
            sizes=tuple(sizes) if self._whole and sizes else None,
            last=last,
            state={
                "made": made,
                "last": last,
                "stream": self._following.state(),
                "dealt": [[], list(self._held), 1],
            },
            extra=counts.extra(),
            decoded_bytes=0,
        )

    def again(self, state: Mapping[str, Any], slot: Slot) -> Filled:
        """Fetch a round that was made before.

        Raises
        ------
        SuperbatchError
            Some of it is not on the server any more, so that the place in it cannot be found.
        """
        counts, used = Counts(), 0
        sizes: list[int] = []
        for named in state["made"]:
            entry = self._fetcher.entry(named)
            if self._fetcher.fetch(entry, _from(slot, used), counts):
                used += entry.samples
                sizes.append(entry.samples)
            elif self._whole:
                sizes.append(0)  # the others keep their places
            else:
                raise SuperbatchError(
                    f"the round that the state is in the middle of cannot be made again: "
                    f"{fetching.label(entry)} is not on the server any more; keep more there (the producers' "
                    f"retention), or take states between rounds"
                )
        return Filled(
            samples=used,
            sizes=tuple(sizes) if self._whole and sizes else None,
            last=state["last"],
            state=state,
            extra=counts.extra() | {"rounds": 0.0},
        )


def _from(slot: Slot, row: int) -> Slot:
    return {name: array[row:] for name, array in slot.items()}
