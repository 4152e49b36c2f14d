"""Bringing the batches of producers into memory, and counting what is lost on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.errors import SuperbatchError
from superbatch.source import Fields
from superbatch.stream.entry import Entry, Found, Reader

Name = list[Any]
"""Of a batch, as plain data: producer, run, number, samples, time."""


@dataclass(frozen=True)
class Shape:
    """What batches have to look like.

    Attributes
    ----------
    fields : mapping of str to (shape, dtype)
        The arrays of one sample.
    largest : int
        Samples in a batch, at the most.
    """

    fields: Fields
    largest: int

    def check(self, entry: Entry) -> None:
        """Refuse a batch that is not like the first.

        Raises
        ------
        SuperbatchError
        """
        if dict(entry.fields) != dict(self.fields):
            raise SuperbatchError(
                f"{label(entry)} holds {_listed(entry.fields)}, but the first batch had {_listed(self.fields)}: let "
                f"all producers put the same arrays, or read the others from a source of their own"
            )
        if entry.samples > self.largest:
            raise SuperbatchError(
                f"{label(entry)} has {entry.samples} samples, more than the {self.largest} that there is room for: "
                f"write StreamSource(..., largest={entry.samples})"
            )


@dataclass
class Counts:
    """What happened while one superbatch was made.

    Attributes
    ----------
    batches, samples : int
        That came.
    gaps : int
        Batches that were never seen: the numbers of their producer leave them out.
    torn, evicted : int
        Batches that were half there, or not at all, when they were fetched.
    skipped : int
        Batches that a newer one overtook.
    rounds : int
    age : float
        Seconds since they were put, summed over samples.
    nbytes : int
    """

    batches: int = 0
    samples: int = 0
    gaps: int = 0
    torn: int = 0
    evicted: int = 0
    skipped: int = 0
    rounds: int = 0
    age: float = 0.0
    nbytes: int = 0

    def extra(self) -> dict[str, float]:
        """As ``Stats.source`` sums them up."""
        names = ("batches", "samples", "gaps", "torn", "evicted", "skipped", "rounds")
        return {**{name: float(getattr(self, name)) for name in names}, "age_seconds": self.age}


class Fetcher:
    """Fetches batches into given memory.

    Parameters
    ----------
    reader : Reader
    shape : Shape
    """

    def __init__(self, reader: Reader, shape: Shape) -> None:
        self._reader, self._shape = reader, shape

    def fetch(self, entry: Entry, into: Mapping[str, npt.NDArray[Any]], counts: Counts) -> bool:
        """Bring a batch into the first rows of arrays; False where it is gone, or half of it is.

        Raises
        ------
        SuperbatchError
            It is not like the first batch.
        """
        self._shape.check(entry)
        views = {name: array[: entry.samples] for name, array in into.items()}
        found = self._reader.fetch(entry, views)
        if found is Found.GONE:
            counts.evicted += 1
        elif found is Found.TORN:
            counts.torn += 1
        else:
            counts.batches += 1
            counts.nbytes += entry.nbytes
        return found is Found.WHOLE

    def entry(self, named: Name) -> Entry:
        """A batch that was named, as it would be announced."""
        producer, run, number, samples, put = named
        return Entry(
            producer=producer,
            run=run,
            number=number,
            samples=samples,
            nbytes=0,
            fields=self._shape.fields,
            time=put,
            last=False,
        )

    def taken(self, entry: Entry) -> None:
        """Its producer need not keep it for us any longer."""
        self._reader.taken(entry.producer, entry.run, entry.number)


def served(counts: Counts, samples: int, put: float) -> None:
    """Count samples that are put into a superbatch."""
    counts.samples += samples
    counts.age += samples * max(0.0, time.time() - put)


def name(entry: Entry) -> Name:
    """A batch as plain data, to be found again with ``Fetcher.entry``."""
    return [entry.producer, entry.run, entry.number, entry.samples, entry.time]


def memory(shape: Shape, rows: int) -> dict[str, npt.NDArray[Any]]:
    """Room for so many samples."""
    return {name: np.zeros((rows, *of), dtype) for name, (of, dtype) in shape.fields.items()}


def label(entry: Entry) -> str:
    """A batch in an error."""
    return f"batch {entry.number} of producer {entry.producer!r}"


def _listed(fields: Fields | Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(f"{name} {tuple(shape)} {dtype}" for name, (shape, dtype) in fields.items())
