"""Where the ranks of a run settle things: notes on the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from superbatch.errors import SuperbatchError
from superbatch.stream.entry import Reader


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


class Meeting:
    """One rank's side.

    Parameters
    ----------
    reader : Reader
    group : Group
    timeout : float
        Seconds to wait for another rank.
    """

    def __init__(self, reader: Reader, group: Group, timeout: float) -> None:
        self._reader, self._group, self._timeout = reader, group, timeout

    def settled(self, topic: str, settle: Callable[[], str], what: str) -> str:
        """What rank 0 says: ``settle()`` there, unless it has said so before; on the others it is waited for."""
        posted = self._reader.posted(topic, 0.0)
        if posted is None and self._group.rank == 0:
            posted = settle()
            self._reader.post(topic, posted)
        return self._wait(topic, what) if posted is None else posted

    def least(self, topic: str, have: int, what: str) -> int:
        """The smallest of what all ranks have."""
        self._reader.post(f"{topic}/{self._group.rank}", str(have))
        return min(
            int(self._wait(f"{topic}/{rank}", f"rank {rank} {what}"))
            for rank in range(self._group.world_size)
        )

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
