"""How long a reader waits and fetches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from superbatch.stream.entry import Entry, Found, Reader, Status


class TimedReader:
    """A reader with two clocks.

    Parameters
    ----------
    reader : Reader

    Attributes
    ----------
    wait_seconds : float
        Spent on waiting for producers and other ranks.
    fetch_seconds : float
        Spent on bringing batches into memory.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.wait_seconds = self.fetch_seconds = 0.0

    def producers(self, producers: str | Sequence[str]) -> Mapping[str, Status]:
        """Those that there are, by name."""
        return self._reader.producers(producers)

    def entries(
        self, after: Mapping[str, tuple[str, int]], producers: str | Sequence[str], wait: float
    ) -> Sequence[Entry]:
        """What was put after these runs and numbers."""
        with self._waiting():
            return self._reader.entries(after, producers, wait)

    def fetch(self, entry: Entry, into: Mapping[str, npt.NDArray[Any]]) -> Found:
        """Bring a batch into arrays."""
        began = time.monotonic()
        try:
            return self._reader.fetch(entry, into)
        finally:
            self.fetch_seconds += time.monotonic() - began

    def taken(self, producer: str, run: str, number: int) -> None:
        """Tell a producer that waits that this batch is not needed any more."""
        self._reader.taken(producer, run, number)

    def post(self, topic: str, text: str) -> None:
        """Leave a note for other ranks."""
        self._reader.post(topic, text)

    def posted(self, topic: str, wait: float) -> str | None:
        """A note that was left."""
        with self._waiting():
            return self._reader.posted(topic, wait)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.wait_seconds += time.monotonic() - began
