"""A model of what the plan has to do, written as loops over lists of every window.

It shares no code and no formula with the package, so a mistake in one is not a mistake in both.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.sequences import Axis
from superbatch.archive.starts import Starts


@dataclass
class Line:
    """One dimension: its chunks, and the starts that may be drawn along it."""

    sizes: list[int]  # positions in each chunk
    width: int
    per_sequence: int
    chosen: list[int] | None = None  # valid starts; None where all are
    weights: list[float] | None = None

    @property
    def length(self) -> int:
        return sum(self.sizes)

    def starts(self) -> list[int]:
        every = []
        for start in range(self.length):
            if all(start + k < self.length for k in range(self.width)):
                every.append(start)
        if self.chosen is None:
            return every
        return [start for start in every if start in self.chosen]

    def probability(self) -> list[float]:
        weights = self.weights or [1.0] * len(self.starts())
        return [w / math.fsum(weights) for w in weights]

    def block_of(self) -> list[int]:
        """The block of chunks that each position lies in."""
        out = []
        for chunk, size in enumerate(self.sizes):
            out += [chunk // self.per_sequence] * size
        return out

    def owner(self, start: int) -> int:
        blocks = {self.block_of()[start + k] for k in range(self.width)}
        first = self.block_of()[start]
        return 2 * first if blocks == {first} else 2 * first + 1

    def counts(self) -> dict[int, int]:
        return dict(Counter(self.owner(start) for start in self.starts()))

    def axis(self, name: str = "x") -> Axis:
        starts = None if self.chosen is None else Starts(np.array(self.starts(), np.int64))
        weights = None if self.weights is None else np.array(self.weights)
        chunks = Chunks.irregular(self.sizes)
        return Axis(name, chunks, self.width, self.per_sequence, starts, weights)


def windows(lines: Sequence[Line]) -> list[tuple[int, ...]]:
    """Every valid window of an archive, by its start."""
    return list(itertools.product(*(line.starts() for line in lines)))


def owner(lines: Sequence[Line], start: Sequence[int]) -> tuple[int, ...]:
    return tuple(line.owner(int(s)) for line, s in zip(lines, start, strict=True))


@st.composite
def sizes(draw: st.DrawFn, most: int = 40) -> list[int]:
    """Chunks: equal ones of which the first and the last may be cut short, or any."""
    if draw(st.booleans()):
        return draw(st.lists(st.integers(1, 9), min_size=1, max_size=max(1, most // 5)))
    length, size = draw(st.integers(1, most)), draw(st.integers(1, 12))
    offset = draw(st.integers(0, size - 1))
    out = []
    at = -offset
    while at < length:
        out.append(min(at + size, length) - max(at, 0))
        at += size
    return out


@st.composite
def lines(draw: st.DrawFn, most: int = 40, weighted: bool | None = None) -> Line:
    """A dimension with at least one valid window."""
    chunks = draw(sizes(most))
    length = sum(chunks)
    # The extremes matter most: one position, and the whole array.
    width = draw(st.one_of(st.integers(1, length), st.sampled_from([1, length])))
    line = Line(chunks, width, draw(st.integers(1, 4)))
    every = line.starts()
    if draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
        if draw(st.booleans()):  # a few runs of neighbours, as gaps and periods leave them
            chosen = [s for s in every if any(abs(s - c) <= 3 for c in chosen)]
        line.chosen = sorted(chosen)
    if draw(st.booleans()) if weighted is None else weighted:
        line.weights = [draw(st.sampled_from([0.01, 0.5, 1.0, 3.0])) for _ in line.starts()]
    return line


def chi_square(counts: Sequence[float], expected: Sequence[float]) -> float:
    """How far counts are from what is expected, in standard deviations of a normal variable.

    Wilson and Hilferty's cube-root transformation of the chi-square statistic, one degree of
    freedom fewer than there are cells.
    """
    observed, right = np.asarray(counts, float), np.asarray(expected, float)
    assert right.min() >= 5, "too few draws for a chi-square test"
    freedom = len(right) - 1
    statistic = float(((observed - right) ** 2 / right).sum())
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5
