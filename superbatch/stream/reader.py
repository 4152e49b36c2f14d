"""The trainer's side: what was put, and bringing it into memory."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from superbatch.errors import SuperbatchError
from superbatch.stream import frame, keys
from superbatch.stream.address import connect, is_cluster, reason, shown
from superbatch.stream.bulk import Bulk
from superbatch.stream.entry import Entry, Found
from superbatch.stream.producer import DAY

_LOOK_UP = 1.0  # seconds
# Entries of one producer that are read at a time.
_MANY = 1000


@dataclass(frozen=True)
class ProducerStatus:
    """How a producer is.

    Attributes
    ----------
    closed : bool
        Whether its latest run is over.
    silent : float
        Seconds since its last sign of life, by the server's clock.
    """

    closed: bool
    silent: float


class Reader:
    """A connection to a server that producers put batches on.

    Parameters
    ----------
    address : str
    timeout : float
        Seconds for which a server that is away is waited for.
    """

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        self.address, self._timeout = address, float(timeout)
        self._client = connect(address, self._timeout)
        self._bulk: Bulk | None = None
        self._at: dict[str, bytes] = {}  # of each producer's index: the latest entry that was read

    def producers(self, producers: str | Sequence[str]) -> dict[str, ProducerStatus]:
        """Those that there are, by name; ``producers`` is a pattern, or names."""
        found = {}
        for name in self._names(producers):
            closed, left = self._again(
                lambda name=name: (
                    self._client.hget(keys.state(name), "closed"),
                    self._client.pttl(keys.beat(name)),
                )
            )
            silent = DAY - left / 1000 if left >= 0 else float(DAY)
            found[name] = ProducerStatus(closed == b"1", max(0.0, silent))
        return found

    def entries(
        self, after: Mapping[str, tuple[str, int]], producers: str | Sequence[str], wait: float
    ) -> list[Entry]:
        """What was put after these runs and numbers, in the order of production.

        Parameters
        ----------
        after : mapping of str to (str, int)
            Of each producer: run and number of what is known.
        producers : str or sequence of str
            A pattern, or names.
        wait : float
            Seconds to wait where there is nothing.
        """
        deadline = time.monotonic() + wait
        while True:
            # Looked up first: what is put meanwhile wakes us up at once.
            news = self._again(lambda: self._client.xrevrange(keys.NEWS, count=1))
            found = self._found(after, producers)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            at = news[0][0] if news else b"0"
            # In a cluster a producer may die between its batch and the news of it: looked up now and then.
            block = max(1, int(1000 * min(left, self._timeout / 2, _LOOK_UP)))
            self._again(lambda at=at, block=block: self._client.xread({keys.NEWS: at}, 1, block))

    def fetch(self, entry: Entry, into: Mapping[str, npt.NDArray[Any]]) -> Found:
        """Bring a batch into arrays of ``(samples, *shape)``, C-contiguous."""
        fields = {name: (array.shape[1:], array.dtype) for name, array in into.items()}
        found = frame.names(fields, entry.producer, entry.run, entry.number, entry.samples)
        arrays = {name: array[: entry.samples] for name, array in into.items()}
        memories = [memory for _, _, memory in frame.pieces(arrays)]
        there = self._again(lambda: self._get(found, memories))
        if there == len(found):
            return Found.WHOLE
        return Found.TORN if there else Found.GONE

    def taken(self, producer: str, run: str, number: int) -> None:
        """Tell a producer that waits that this batch is not needed any more."""
        self._again(
            lambda: self._client.xadd(
                keys.taken(producer), {"r": run, "n": number}, maxlen=1, approximate=False
            )
        )

    def post(self, topic: str, text: str) -> None:
        """Leave a note for other ranks; it is forgotten after a day."""

        def leave() -> None:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.delete(keys.note(topic))
                pipe.rpush(keys.note(topic), text)
                pipe.expire(keys.note(topic), DAY)
                pipe.execute()

        self._again(leave)

    def posted(self, topic: str, wait: float) -> str | None:
        """A note that was left; None where none comes within ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:
            found = self._again(lambda: self._client.lindex(keys.note(topic), 0))
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return None if found is None else found.decode()
            # All ranks read the same note: it is moved to its own place, which blocks until it is there.
            block = min(left, self._timeout / 2)
            self._again(
                lambda block=block: self._client.blmove(
                    keys.note(topic), keys.note(topic), block, "LEFT", "LEFT"
                )
            )

    def close(self) -> None:
        """Close the connections."""
        if self._bulk is not None:
            self._bulk.close()
        self._client.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "_timeout": self._timeout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["address"], state["_timeout"])  # type: ignore[misc]

    # -- the server ------------------------------------------------------------------------------

    def _names(self, producers: str | Sequence[str]) -> list[str]:
        if not isinstance(producers, str):
            return list(producers)
        names = self._again(lambda: self._client.smembers(keys.NAMES))
        return sorted(n.decode() for n in names if fnmatch.fnmatchcase(n.decode(), producers))

    def _found(
        self, after: Mapping[str, tuple[str, int]], producers: str | Sequence[str]
    ) -> list[Entry]:
        found: list[tuple[tuple[int, int], Entry]] = []
        for name in self._names(producers):
            known = self._at.get(name)
            begin = "-" if known is None else f"({known.decode()}"
            read = self._again(
                lambda name=name, begin=begin: self._client.xrange(
                    keys.index(name), begin, count=_MANY
                )
            )
            entries = [(_order(at), frame.entry(name, values)) for at, values in read]
            if read:
                self._at[name] = read[-1][0]
            found += _new(entries, after.get(name), first=known is None)
        return [entry for _, entry in sorted(found, key=lambda item: item[0])]

    def _get(self, names: list[str], memories: list[memoryview]) -> int:
        """How many of the values were there."""
        if is_cluster(self._client):
            count = 0
            for name, memory in zip(names, memories, strict=True):
                value = self._client.get(name)
                if value is not None and len(value) == len(memory):
                    memory[:] = value
                    count += 1
            return count
        if self._bulk is None:
            self._bulk = Bulk(self._client)
        try:
            return self._bulk.get_into(names, memories)
        except OSError:
            self._bulk.close()
            self._bulk = None
            raise

    def _again(self, ask: Any) -> Any:
        """Ask until the server answers, or the time is over."""
        import redis

        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask()
            except (
                redis.ConnectionError,
                redis.TimeoutError,
                redis.InvalidResponse,
                OSError,
            ) as error:
                wrong = isinstance(error, (redis.AuthenticationError, redis.InvalidResponse))
                if wrong or time.monotonic() + 0.05 > deadline:
                    raise SuperbatchError(
                        f"the server at {shown(self.address)} did not answer within "
                        f"timeout={self._timeout:g} s ({reason(error)}): start it, or give the address= of another"
                    ) from error
                time.sleep(0.05)


def _order(at: bytes) -> tuple[int, int]:
    first, _, second = at.partition(b"-")
    return int(first), int(second)


def _new(
    entries: list[tuple[tuple[int, int], Entry]], after: tuple[str, int] | None, first: bool
) -> list[tuple[tuple[int, int], Entry]]:
    """Of a producer's entries those that come after what is known."""
    if after is None:
        return entries
    run, number = after
    if first:
        # Runs before the known one are over; where it is not in the index any more, all are newer.
        old = [k for k, (_, e) in enumerate(entries) if e.run == run and e.number <= number]
        runs = [k for k, (_, e) in enumerate(entries) if e.run == run]
        skip = max(old) + 1 if old else (runs[0] if runs else 0)
        entries = entries[skip:]
    return [(at, e) for at, e in entries if e.run != run or e.number > number]
