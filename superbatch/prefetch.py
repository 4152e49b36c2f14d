"""Keeps the loaders busy with the superbatches that will be wanted next, in order."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from superbatch.errors import LoaderTimeout
from superbatch.loader import Job
from superbatch.source import Filled, Place
from superbatch.supervise import Loaders
from superbatch.transport import Receiver

# How often a wait looks up, so that Ctrl-C and the deadline are seen.
_LOOK_UP = 0.5


@dataclass
class Superbatch:
    """A superbatch that is in its slot."""

    place: Place
    slot: int
    filled: Filled
    arrays: Mapping[str, npt.NDArray[Any]]


@dataclass
class _Asked:
    """A superbatch that was asked for."""

    job: Job
    filled: Filled | None = field(default=None)

    @property
    def place(self) -> Place:
        return self.job.epoch, self.job.index


class Prefetcher:
    """Gives out jobs while there are free slots, and hands over superbatches in order.

    Parameters
    ----------
    loaders : Loaders
    receiver : Receiver
    slots : int
    following : callable
        ``following(place)``: which superbatch is wanted after one; None after the last.
    timeout : float
        Seconds to wait for a superbatch.
    """

    def __init__(
        self,
        loaders: Loaders,
        receiver: Receiver,
        slots: int,
        following: Callable[[Place], Place | None],
        timeout: float,
    ) -> None:
        self._loaders, self._receiver = loaders, receiver
        self._following, self._timeout = following, timeout
        self._free = deque(range(slots))
        self._line: deque[_Asked] = deque()  # in the order in which they will be wanted
        self._abandoned: set[Job] = set()
        self._serials = itertools.count()
        self._next: Place | None = None

    def seek(self, place: Place) -> None:
        """From now on this superbatch is wanted, then those that follow it."""
        while self._line and self._line[0].place != place:
            self._abandon(self._line.popleft())
        if not self._line:
            self._next = place
        self._ask()

    def ready(self, place: Place) -> bool:
        """Whether a superbatch is there, without waiting."""
        self.poll()
        return any(a.place == place and a.filled is not None for a in self._line)

    def filled(self) -> int:
        """How many superbatches are there beyond the one that is being served, without waiting."""
        self.poll()
        return sum(asked.filled is not None for asked in self._line)

    def get(self, place: Place) -> Superbatch:
        """Wait for a superbatch; those before it are given up.

        Raises
        ------
        LoaderTimeout
            It did not come in time.
        Exception
            What a loader failed with.
        """
        self.seek(place)
        deadline = time.monotonic() + self._timeout
        # Nothing is in line while every slot is with a job that was given up and is being made still.
        while not self._line or self._line[0].filled is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise LoaderTimeout(
                    f"superbatch {place[1]} of epoch {place[0]} did not arrive within timeout={self._timeout:g} s: "
                    f"the loaders are alive but slow or stuck; check the store, or raise timeout="
                )
            self.poll(min(left, _LOOK_UP))
        asked = self._line.popleft()
        assert asked.filled is not None
        return Superbatch(place, asked.job.slot, asked.filled, self._receiver.views[asked.job.slot])

    def release(self, slot: int) -> None:
        """The slot is not read any more."""
        self._free.append(slot)
        self._ask()

    def poll(self, timeout: float = 0.0) -> None:
        """Take in what loaders have done; raises what one failed with."""
        for job, token in self._loaders.poll(timeout):
            if job in self._abandoned:
                self._abandoned.discard(job)
                self.release(job.slot)
                continue
            asked = next((a for a in self._line if a.job == job), None)
            if asked is not None and token is not None:
                asked.filled = token.filled
                if token.filled.last:
                    self._end_after(asked)

    def _ask(self) -> None:
        while self._free and self._next is not None:
            job = Job(*self._next, self._free.popleft(), next(self._serials))
            self._line.append(_Asked(job))
            self._next = self._following(self._next)
            self._loaders.submit(job)

    def _end_after(self, last: _Asked) -> None:
        """Give up what was asked for beyond the end of a stream."""
        while self._line[-1] is not last:
            self._abandon(self._line.pop())
        self._next = None

    def _abandon(self, asked: _Asked) -> None:
        if asked.filled is not None:
            self._free.append(asked.job.slot)
        else:
            self._abandoned.add(asked.job)
            self._loaders.cancel(asked.job)
