"""Following the producers of a stream: what comes next, what is missing, who is silent, and when it is over."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from superbatch.errors import SuperbatchError
from superbatch.stream.entry import Entry, Reader

# How often a wait looks up, to see who is silent.
_LOOK_UP = 1.0

Position = dict[str, tuple[str, int]]
"""Run and number of the latest batch, by producer."""


class Following:
    """The batches of several producers, in the order of production, each once.

    Parameters
    ----------
    reader : Reader
    producers : str or sequence of str
        A pattern, or names.
    expect : int
        Producers that have to have been there before the stream can be over.
    timeout : float
        Seconds to wait for a batch.
    silence : float
        Seconds without a sign of life after which a producer counts as dead.
    state : mapping, optional
        What :meth:`state` gave: go on after it.
    """

    def __init__(
        self,
        reader: Reader,
        producers: str | Sequence[str],
        *,
        expect: int,
        timeout: float,
        silence: float,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._reader, self._producers, self._expect = reader, producers, expect
        self._timeout, self._silence = timeout, silence
        state = state or {}
        self._taken: Position = {p: (run, n) for p, run, n in state.get("taken", ())}
        self._runs: dict[str, list[str]] = {p: list(runs) for p, runs in state.get("runs", ())}
        self._closed: dict[str, str] = dict(state.get("closed", ()))
        self._read: Position = dict(self._taken)  # beyond what was taken: what waits in line
        self._line: deque[Entry] = deque()
        self._before: tuple[str, int] | None = (
            None  # what was taken of the latest one's producer before
        )
        self._checked = 0.0
        self.gaps = 0

    def state(self) -> dict[str, Any]:
        """Where the stream stands after what was taken: plain data."""
        taken = self._taken.items()
        return {
            "taken": [[producer, run, number] for producer, (run, number) in taken],
            # Runs that are only in line are not known yet.
            "runs": [
                [producer, self._runs[producer][: self._runs[producer].index(run) + 1]]
                for producer, (run, _) in taken
            ],
            "closed": [[p, run] for p, (run, _) in taken if self._closed.get(p) == run],
        }

    @property
    def over(self) -> bool:
        """Whether everything was taken, and nothing follows."""
        if self._line or len(self._taken) < self._expect:
            return False
        return all(self._closed.get(p) == run for p, (run, _) in self._taken.items())

    def next(self, *, wait: bool = True, what: str = "a batch") -> Entry | None:
        """The next batch; None at the end of the stream, and where none is there and ``wait`` is False.

        Raises
        ------
        SuperbatchError
            None came in time, or a producer is silent.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            while self._line:
                entry = self._line.popleft()
                self._take(entry)
                if not entry.last:
                    return entry
            if self.over:
                return None
            left = deadline - time.monotonic()
            if not self._look(min(max(left, 0.0), _LOOK_UP) if wait else 0.0):
                if not wait:
                    return None
                self.check_alive()
                if left <= 0:
                    raise SuperbatchError(
                        f"{what} did not come within timeout={self._timeout:g} s: {self._there()}; start the "
                        f"producers, or raise timeout="
                    )

    def give_back(self, entry: Entry) -> None:
        """The batch that came last was not taken after all: it comes again."""
        self._line.appendleft(entry)
        if self._before is None:
            del self._taken[entry.producer]
        else:
            self._taken[entry.producer] = self._before

    def newest(self, *, what: str = "a newer batch") -> tuple[Entry | None, int]:
        """The newest batch that was not taken, waiting for it, and how many were passed over; None at the end."""
        entry, skipped = self.next(what=what), 0
        while entry is not None and (newer := self.next(wait=False)) is not None:
            entry, skipped = newer, skipped + 1
        return entry, skipped

    def _look(self, wait: float) -> bool:
        """Take in what there is; whether it is anything."""
        found = False
        for entry in self._reader.entries(self._read, self._producers, wait):
            run, number = self._read.get(entry.producer, (entry.run, entry.number - 1))
            runs = self._runs.setdefault(entry.producer, [])
            if entry.run == run and number >= entry.number and entry.producer in self._read:
                continue  # an index entry that was written twice
            if entry.run != run and entry.run in runs:
                continue  # of a run that another one has followed
            if entry.run not in runs:
                runs.append(entry.run)
            if entry.run == run:
                self.gaps += max(0, entry.number - number - 1)
            self._read[entry.producer] = entry.run, entry.number
            self._line.append(entry)
            found = True
        return found

    def _take(self, entry: Entry) -> None:
        self._before = self._taken.get(entry.producer)
        self._taken[entry.producer] = entry.run, entry.number
        if entry.last:
            self._closed[entry.producer] = entry.run

    def check_alive(self) -> None:
        """Name a producer that gives no sign of life.

        Raises
        ------
        SuperbatchError
        """
        if self._line or time.monotonic() - self._checked < _LOOK_UP:
            return
        self._checked = time.monotonic()
        for name, status in self._reader.producers(self._producers).items():
            if not status.closed and status.silent > self._silence:
                number = self._read.get(name, ("", -1))[1]
                raise SuperbatchError(
                    f"producer {name!r} has given no sign of life for {status.silent:.1f} s and did not close its "
                    f"stream (last batch: {'none' if number < 0 else number}): look whether it has died, restart it, "
                    f"or write silence= above {self._silence:g}"
                )

    def _there(self) -> str:
        statuses = self._reader.producers(self._producers)
        if not statuses:
            return f"no producer {self._producers!r} is there"
        open_ = [name for name, status in statuses.items() if not status.closed]
        if open_:
            return f"producers {', '.join(sorted(open_)[:5])} are alive and put nothing"
        if len(statuses) < self._expect:
            return f"{len(statuses)} of {self._expect} producers were there and have closed"
        return "all producers have closed, but not all has come"
