"""From anchors to positions in an array: tables that are looked up for all samples at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from superbatch import seeds

Ints = npt.NDArray[np.int64]
Span = tuple[Ints, Ints]


@dataclass(frozen=True, eq=False)
class Lookup:
    """Where a window lies along one dimension of an array, given the anchor.

    Attributes
    ----------
    columns : tuple of int
        The columns of the anchor that it depends on: one, or two where a grid is turned against that of
        the anchors.
    table : int array, one dimension for each column, or None
        The position for each place along the columns; None where it is the place itself.
    """

    columns: tuple[int, ...]
    table: npt.NDArray[np.integer] | None = None

    def at(self, anchors: Ints) -> Ints:
        """The position for each anchor, shape (n,)."""
        if self.table is None:
            return anchors[:, self.columns[0]]
        return self.table[tuple(anchors[:, c] for c in self.columns)].astype(np.int64)

    def range(self, spans: Sequence[Span]) -> Span:
        """Lowest and highest position that the anchors of each sequence can have.

        Parameters
        ----------
        spans : sequence of (first, last)
            For each column of the anchor, its first and last place in every sequence.
        """
        mine = [spans[c] for c in self.columns]
        if self.table is None:
            return mine[0]
        low, high = [], []
        for number in range(len(mine[0][0])):
            part = self.table[tuple(slice(f[number], t[number] + 1) for f, t in mine)]
            low.append(int(part.min()))
            high.append(int(part.max()))
        return np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Points:
    """Runs and steps of a forecast, one of each for every valid time of a window.

    Attributes
    ----------
    column : int
        The column of the anchor that holds the time.
    run_dim, step_dim : int
        The dimensions of the array.
    run, step : int32 array, shape (variants, times, points)
        Positions along them, for each variant of the delay and each place along the column.
    thresholds : float64 array, shape (variants - 1,)
        A sample whose noise in [0, 1) is below the first uses variant 1, below the second variant 2,
        and so on; else variant 0.
    before : bool
        Whether the step before each is needed as well.
    key : int
        Of the modality: keeps its noise apart from that of others.
    """

    column: int
    run_dim: int
    step_dim: int
    run: npt.NDArray[np.int32]
    step: npt.NDArray[np.int32]
    thresholds: npt.NDArray[np.float64]
    before: bool = False
    key: int = 0

    def variants(self, noise: npt.NDArray[np.float64]) -> Ints:
        """Which delay each sample has."""
        if not len(self.thresholds):
            return np.zeros(len(noise), dtype=np.int64)
        number = np.searchsorted(self.thresholds, seeds.apart(noise, self.key), side="right")
        last = len(self.thresholds)
        return np.where(number == last, 0, number + 1).astype(np.int64)

    def range(self, spans: Sequence[Span], table: npt.NDArray[np.int32]) -> Span:
        """Lowest and highest position in ``run`` or ``step`` that each sequence needs."""
        first, last = spans[self.column]
        parts = [table[:, f : t + 1] for f, t in zip(first, last, strict=True)]
        low = np.array([int(p.min()) for p in parts], dtype=np.int64)
        return low, np.array([int(p.max()) for p in parts], dtype=np.int64)
