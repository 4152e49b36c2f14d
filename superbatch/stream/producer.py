"""The simulation's side: puts numbered batches on a server."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from types import TracebackType
from typing import Any

from superbatch.arguments import check_seconds
from superbatch.closing import Closing
from superbatch.errors import ArgumentError, SuperbatchError
from superbatch.errors import shown as brief
from superbatch.stream import frame, keys
from superbatch.stream.address import connect, is_cluster, reason, shown
from superbatch.stream.held import Batch, Held
from superbatch.stream.retention import Append, Retention

# Seconds between signs of life, and how long the server remembers one.
HEARTBEAT = 1.0
DAY = 86_400
# A reader that looks up a batch that may be evicted has this long; far more than it needs.
_EXPIRES = 7 * DAY


class Producer(Closing):
    """Puts batches of named arrays on a Redis or Valkey server, one atomic thing each.

    Batches are numbered. A batch that had to be sent again after the connection broke is there once: the
    server refuses an entry of the index that it has.

    Parameters
    ----------
    address : str
        See :func:`superbatch.stream.address.connect`.
    name : str
        Of this producer; no other may use it at the same time.
    retention : Retention
        What stays on the server: ``Append()``, ``Overwrite()``, ``Ring(k)``, ``LRU("2GB")``, ``Bounded(k)``.
    resume : bool
        Go on with the numbers of the latest run, if it was not closed, rather than beginning another.
    timeout : float
        Seconds that ``put`` may wait: for the server, and with ``Bounded`` for the trainer.

    Raises
    ------
    ArgumentError
        Wrong arguments.
    SuperbatchError
        The server cannot be reached.

    Examples
    --------
    >>> import numpy as np
    >>> from superbatch import stream
    >>> with stream.Server() as server, stream.Producer(server.address, "sim0") as producer:
    ...     producer.put(data=np.zeros((8, 64, 64), "f4"), target=np.arange(8))
    0
    """

    def __init__(
        self,
        address: str,
        name: str,
        retention: Retention | None = None,
        *,
        resume: bool = False,
        timeout: float = 60.0,
    ) -> None:
        if not isinstance(name, str) or not name or set(name) & set("{}*?["):
            raise ArgumentError(
                f"name={brief(name)} cannot be a producer's: write a text without any of {{}}*?["
            )
        retention = Append() if retention is None else retention
        if not isinstance(retention, Retention):
            raise ArgumentError(
                f"retention={brief(retention)} is none: write stream.Append(), Overwrite(), Ring(k), LRU(bytes) "
                f"or Bounded(k)"
            )
        check_seconds("timeout", timeout)
        self.address, self.name, self.retention = address, name, retention
        self._timeout = float(timeout)
        self._client = connect(address, self._timeout)
        self.run, self.number = uuid.uuid4().hex[:12], 0
        self._stamp = 0  # of the latest entry of the index, in milliseconds
        self._held = Held(name)
        self._taken_at = b"0"
        self._closed = False
        self._ended: threading.Event | None = None
        self._deadline = time.monotonic() + self._timeout
        self._again(lambda: self._enter(resume))
        self._beat()

    def put(self, **arrays: Any) -> int:
        """Put a batch.

        Parameters
        ----------
        **arrays : array_like
            By field; the first dimension counts samples, as many in each. Any numeric type, any memory order.

        Returns
        -------
        int
            The batch's number in this run.

        Raises
        ------
        ArgumentError
            Arrays that are no batch.
        SuperbatchError
            The server did not answer, or the trainer took nothing, within ``timeout``; or there is no memory left.
        """
        if self._closed:
            raise SuperbatchError(f"the producer {self.name!r} is closed: make a new one")
        batch = frame.checked(arrays)
        self._deadline = time.monotonic() + self._timeout
        taken = None
        if self.retention.wait is not None:
            taken = self._wait(self.retention.wait)
        number = self.number
        found = [
            (keys.piece(self.name, self.run, number, field, part), memory)
            for field, part, memory in frame.pieces(batch)
        ]
        gone = self._outdated(taken)
        self._stamp = max(self._stamp + 1, int(1000 * time.time()))
        samples = len(next(iter(batch.values())))
        self._again(lambda: self._write(number, samples, frame.about(batch), found, gone))
        self._held.remove(gone)
        if self._removes:
            stamp = f"{self._stamp}-0".encode()
            self._held.add(Batch(stamp, self.run, number, [key for key, _ in found]))
        self.number += 1
        return number

    def close(self) -> None:
        """Mark the end of this run. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._deadline = time.monotonic() + self._timeout
        self._stamp = max(self._stamp + 1, int(1000 * time.time()))
        try:
            self._again(lambda: self._write(self.number, 0, "{}", [], [], last=True))
        finally:
            self._stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            super().__exit__(kind, error, traceback)
        else:  # a simulation that failed has not come to its end
            self._closed = True
            self._stop()

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: v for k, v in vars(self).items() if k not in ("_client", "_ended")}
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._client, self._ended = connect(self.address, self._timeout), None
        if not self._closed:
            self._beat()

    # -- what goes to the server -----------------------------------------------------------------

    def _enter(self, resume: bool) -> None:
        client, name = self._client, self.name
        self.retention.prepare(client)
        newest = client.xrevrange(keys.index(name), count=1)
        if newest:
            self._stamp = int(newest[0][0].split(b"-")[0])
            last = frame.entry(name, newest[0][1])
            if resume and not last.last:
                self.run, self.number = last.run, last.number + 1
        if self._removes:
            # What an earlier life of this producer has left counts as well.
            self._held = Held(name, client.xrange(keys.index(name)))
        client.sadd(keys.NAMES, name)
        with client.pipeline(transaction=True) as pipe:
            pipe.hset(keys.state(name), mapping={"run": self.run, "closed": 0})
            pipe.set(keys.beat(name), 1, ex=DAY)
            pipe.execute()

    def _write(
        self,
        number: int,
        samples: int,
        fields: str,
        found: list[tuple[str, memoryview]],
        gone: list[Batch],
        last: bool = False,
    ) -> None:
        """All of a batch, or nothing of it; its entry in the index comes last."""
        import redis

        client, name = self._client, self.name
        entry = {
            "r": self.run,
            "n": number,
            "s": samples,
            "f": fields,
            "t": time.time(),
            "l": int(last),
        }
        with client.pipeline(transaction=True) as pipe:
            for key, memory in found:
                pipe.set(key, memory, ex=_EXPIRES if self.retention.expires else None)
            if gone:
                pipe.unlink(*(key for batch in gone for key in batch.keys))
            pipe.set(keys.beat(name), 1, ex=DAY)
            if last:
                pipe.hset(keys.state(name), "closed", 1)
            pipe.xadd(keys.index(name), entry, id=f"{self._stamp}-0")
            if gone:
                pipe.xdel(keys.index(name), *(batch.stamp for batch in gone))
            if (
                not self._cluster
            ):  # where all keys are in one place, readers are woken up by the same transaction
                _announce(pipe, name)
            results = pipe.execute(raise_on_error=False)
        for result in results:
            if isinstance(result, redis.ResponseError):
                if "equal or smaller" not in str(result):
                    raise result
                if not self._there(number):
                    # Somebody else with this name, or an earlier life of it, has a clock that is ahead.
                    newest = client.xrevrange(keys.index(name), count=1)
                    self._stamp = int(newest[0][0].split(b"-")[0]) + 1
                    return self._write(number, samples, fields, found, gone, last)
        if self._cluster:
            with client.pipeline(transaction=False) as pipe:
                _announce(pipe, name)
                pipe.execute()
        return None

    def _there(self, number: int) -> bool:
        """Whether the entry was made: its answer may have been lost, and it was sent again."""
        at = f"{self._stamp}-0"
        found = self._client.xrange(keys.index(self.name), at, at)
        return bool(found) and (found[0][1][b"r"].decode(), int(found[0][1][b"n"])) == (
            self.run,
            number,
        )

    @property
    def _removes(self) -> bool:
        return self.retention.keep is not None or self.retention.wait is not None

    @property
    def _cluster(self) -> bool:
        return is_cluster(self._client)

    def _outdated(self, taken: tuple[str, int] | None) -> list[Batch]:
        """What is removed when the next batch is put."""
        if self.retention.keep is not None:
            return self._held.beyond(self.retention.keep - 1)
        return self._held.done(taken) if self.retention.wait is not None else []

    def _wait(self, most: int) -> tuple[str, int] | None:
        """Until fewer than ``most`` batches are there that were not taken; which one was taken last."""
        while self._held.untaken(taken := self._taken()) >= most:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise SuperbatchError(
                    f"the trainer took no batch of {self.name!r} within timeout={self._timeout:g} s, and "
                    f"Bounded({most}) keeps no more: start the trainer, or write another retention"
                )
            at = self._taken_at
            self._again(
                lambda at=at, left=left: self._client.xread(
                    {keys.taken(self.name): at},
                    1,
                    max(1, int(1000 * min(left, 1.0, self._timeout / 2))),
                )
            )

        return taken

    def _taken(self) -> tuple[str, int] | None:
        """Run and number of the latest batch that is not needed any more."""
        newest = self._again(lambda: self._client.xrevrange(keys.taken(self.name), count=1))
        self._taken_at = newest[0][0] if newest else b"0"
        return (newest[0][1][b"r"].decode(), int(newest[0][1][b"n"])) if newest else None

    def _again(self, ask: Any) -> Any:
        """Ask until the server answers, or the time is over."""
        import redis

        while True:
            try:
                return ask()
            except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse) as error:
                if isinstance(error, (redis.AuthenticationError, redis.InvalidResponse)) or (
                    time.monotonic() + 0.05 > self._deadline
                ):
                    raise SuperbatchError(
                        f"the server at {shown(self.address)} did not answer the producer {self.name!r} within "
                        f"timeout={self._timeout:g} s ({reason(error)}): start it, or give the address= of another"
                    ) from error
                time.sleep(0.05)
            except redis.ResponseError as error:
                full = isinstance(error, redis.OutOfMemoryError) or "OOM" in str(error)
                advice = (
                    "give it more memory, or write retention=stream.Ring(k) or Bounded(k)"
                    if full
                    else "see its log"
                )
                raise SuperbatchError(
                    f"the server at {shown(self.address)} refused a batch of {self.name!r} ({reason(error)}): {advice}"
                ) from error

    def _beat(self) -> None:
        """Give a sign of life now and then, from a thread with a connection of its own."""
        self._ended = threading.Event()
        threading.Thread(
            target=_live, args=(self.address, self.name, self._ended), daemon=True
        ).start()

    def _stop(self) -> None:
        if self._ended is not None:
            self._ended.set()
        self._client.close()


def _live(address: str, name: str, ended: threading.Event) -> None:
    client = connect(address, 5.0)
    while not ended.wait(HEARTBEAT):
        with contextlib.suppress(Exception):  # that the server is away is noticed by put
            client.set(keys.beat(name), 1, ex=DAY)
            client.sadd(keys.NAMES, name)  # a server may have come back without what it had
    client.close()


def _announce(pipe: Any, name: str) -> None:
    """Make the producer known, and wake readers up."""
    pipe.sadd(keys.NAMES, name)
    pipe.xadd(keys.NEWS, {"p": name}, maxlen=keys.NEWS_LENGTH, approximate=True)
