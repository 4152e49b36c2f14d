"""What of a producer's batches stays on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from superbatch.errors import ArgumentError, SuperbatchError, shown
from superbatch.memory import parse_bytes


@dataclass(frozen=True)
class Retention:
    """How many batches are kept, and whether the producer waits.

    Attributes
    ----------
    keep : int or None
        The newest so many; None for all.
    wait : int or None
        The producer waits while so many are not taken yet.
    expires : bool
        Values may be evicted by the server where its memory is full.
    """

    keep: int | None = None
    wait: int | None = None
    expires: bool = False

    def prepare(self, client: Any) -> None:
        """Set the server up, where that is needed."""


@dataclass(frozen=True)
class Append(Retention):
    """Keep everything; the server's memory grows."""


@dataclass(frozen=True, init=False)
class Ring(Retention):
    """Keep the newest ``k`` batches."""

    def __init__(self, k: int) -> None:
        super().__init__(keep=_count("Ring", k))


@dataclass(frozen=True, init=False)
class Overwrite(Retention):
    """Keep the newest batch alone."""

    def __init__(self) -> None:
        super().__init__(keep=1)


@dataclass(frozen=True, init=False)
class Bounded(Retention):
    """The producer waits, with a deadline, while ``k`` batches are there that were not taken yet."""

    def __init__(self, k: int) -> None:
        super().__init__(wait=_count("Bounded", k))


@dataclass(frozen=True, init=False)
class LRU(Retention):
    """The server throws out what was not read for longest, once it holds ``maxmemory``.

    It is told so by ``CONFIG SET``: only values of batches may go, so the index stays true.
    """

    maxmemory: int = 0

    def __init__(self, maxmemory: str | int) -> None:
        super().__init__(expires=True)
        object.__setattr__(self, "maxmemory", parse_bytes(maxmemory))

    def prepare(self, client: Any) -> None:
        """Limit the server's memory.

        Raises
        ------
        SuperbatchError
            The server does not let itself be configured.
        """
        import redis

        try:
            client.config_set("maxmemory", self.maxmemory)
            client.config_set("maxmemory-policy", "volatile-lru")
        except redis.ResponseError as error:
            raise SuperbatchError(
                f"the server refuses CONFIG SET ({error}): set maxmemory and maxmemory-policy=volatile-lru "
                f"in its configuration, and write retention=stream.Append() or Ring(k)"
            ) from error


def _count(name: str, k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ArgumentError(
            f"{name}({shown(k)}) keeps no number of batches: write an int, 1 or more"
        )
    return k
