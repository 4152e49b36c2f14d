"""What each of several ranks gets of a round. Knows nothing of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Assign = Literal["batches", "samples", "producers"]
ASSIGNS = ("batches", "samples", "producers")

Name = Sequence[Any]
"""Producer, run, number, samples, time."""

Share = list[list[Any]]
"""Of a rank: names of batches, each with its first and its last row."""


class Dealer:
    """Collects batches until every rank has its part of a round.

    Parameters
    ----------
    assign : {"batches", "samples", "producers"}
        Batches in turn, each batch split, or each producer's batches to one rank.
    batches, world_size : int
        Batches of a round, and ranks that share it.
    state : list, optional
        What :meth:`state` gave, of as many ranks or of others.

    Examples
    --------
    >>> dealer = Dealer("batches", 2, 2)
    >>> dealer.add(["sim0", "a", 0, 4, 0.0]), dealer.add(["sim1", "a", 0, 4, 0.0])
    (False, True)
    >>> [[name[0] for name, _, _ in share] for share in dealer.deal()]
    [['sim0'], ['sim1']]
    """

    def __init__(self, assign: str, batches: int, world_size: int, state: Any = None) -> None:
        self._assign, self._batches, self._world = assign, batches, world_size
        owners, held, before = state or ([], [], world_size)
        self._owner = dict(owners) if before == world_size else _kept(owners, world_size)
        self._held: list[Name] = list(held)

    def state(self) -> list[Any]:
        """Plain data: who owns which producer, what is held over, and the number of ranks."""
        owners = [[producer, rank] for producer, rank in self._owner.items()]
        return [owners, [list(name) for name in self._held], self._world]

    def add(self, name: Name) -> bool:
        """Take a batch; whether the round is complete."""
        self._held.append(name)
        return self.complete

    @property
    def complete(self) -> bool:
        """Whether a round can be dealt out."""
        if self._assign != "producers":
            return len(self._held) >= self._batches
        return min(map(len, self._queues())) >= self._batches // self._world

    def deal(self) -> list[Share]:
        """What each rank gets: equally many batches, and so fewer at the end of a stream than there are.

        With ``"samples"`` a batch's rows are cut into equal parts, and what does not divide is left out.
        """
        world = self._world
        if self._assign == "samples":
            names, self._held = self._held[: self._batches], self._held[self._batches :]
            parts = [name[3] // world for name in names]
            return [
                [
                    [name, rank * n, (rank + 1) * n]
                    for name, n in zip(names, parts, strict=True)
                    if n
                ]
                for rank in range(world)
            ]
        queues = self._queues()
        count = min(self._batches // world, *map(len, queues))
        dealt = [queue[:count] for queue in queues]
        rest = {id(name) for queue in queues for name in queue[count:]}
        self._held = [name for name in self._held if id(name) in rest]
        return [[[name, 0, name[3]] for name in queue] for queue in dealt]

    @property
    def left(self) -> int:
        """Batches that are held over."""
        return len(self._held)

    def _queues(self) -> list[list[Name]]:
        if self._assign == "batches":
            return [self._held[rank :: self._world] for rank in range(self._world)]
        queues: list[list[Name]] = [[] for _ in range(self._world)]
        for name in self._held:
            producer = name[0]
            if producer not in self._owner:  # to the rank that has the fewest
                owned = list(self._owner.values())
                self._owner[producer] = min(range(self._world), key=lambda r: (owned.count(r), r))
            queues[self._owner[producer]].append(name)
        return queues


def _kept(owners: Sequence[tuple[str, int]], world_size: int) -> dict[str, int]:
    """Of producers that other ranks owned, those that stay where they are, so that all can get equally many.

    The others go to the ranks that have fewest, as new ones do.
    """
    each, more = divmod(len(owners), world_size)
    found: dict[str, int] = {}
    for producer, rank in owners:
        if rank >= world_size:
            continue
        has = list(found.values()).count(rank)
        if has == each and more:
            more -= 1
        elif has >= each:
            continue
        found[producer] = rank
    return found
