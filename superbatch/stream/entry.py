"""What a reader says about batches and producers, and what it has to offer."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Found(enum.Enum):
    """What was on the server of a batch."""

    WHOLE = enum.auto()
    TORN = enum.auto()
    """Some of its values, and not others."""
    GONE = enum.auto()


@dataclass(frozen=True)
class Entry:
    """A batch that was put.

    Attributes
    ----------
    producer, run : str
        Who put it; a producer that is started anew may begin a run of its own.
    number : int
        Counted by the producer.
    samples, nbytes : int
    fields : mapping of str to (shape, dtype)
        The arrays of one sample.
    time : float
        When it was put, in seconds since 1970.
    last : bool
        Not a batch: the producer has closed this run.
    """

    producer: str
    run: str
    number: int
    samples: int
    nbytes: int
    fields: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    time: float
    last: bool = False


class Status(Protocol):
    """How a producer is."""

    @property
    def closed(self) -> bool:
        """Whether its latest run is over."""

    @property
    def silent(self) -> float:
        """Seconds since its last sign of life."""


class Reader(Protocol):
    """A connection to where batches are put."""

    def producers(self, producers: str | Sequence[str]) -> Mapping[str, Status]:
        """Those that there are, by name."""

    def entries(
        self, after: Mapping[str, tuple[str, int]], producers: str | Sequence[str], wait: float
    ) -> Sequence[Entry]:
        """What was put after these runs and numbers, in the order of production; waits up to ``wait`` seconds."""

    def fetch(self, entry: Entry, into: Mapping[str, npt.NDArray[Any]]) -> Found:
        """Bring a batch into arrays of ``(samples, *shape)``; what they hold is of use where it is whole."""

    def taken(self, producer: str, run: str, number: int) -> None:
        """Tell a producer that waits that this batch is not needed any more."""

    def post(self, topic: str, text: str) -> None:
        """Leave a note for other ranks; it may be forgotten after a day."""

    def posted(self, topic: str, wait: float) -> str | None:
        """A note that was left; None where none comes within ``wait`` seconds."""

    def close(self) -> None:
        """Close the connection."""
