"""Valid starts along an axis, kept as runs of neighbours.

A gap or a period cuts an axis into a few long runs, so what is kept does not grow with the number of windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_NOWHERE = -(2**62)


class Starts:
    """Ascending, distinct positions.

    Parameters
    ----------
    positions : int64 array, shape (n,)

    Examples
    --------
    >>> starts = Starts(np.array([0, 1, 2, 7, 8]))
    >>> len(starts), starts.position(np.array([2, 3])).tolist(), starts.below(np.array([7])).tolist()
    (5, [2, 7], [3])
    """

    def __init__(self, positions: Ints) -> None:
        breaks = np.flatnonzero(np.diff(positions) != 1) + 1
        edges = np.unique(np.concatenate([[0], breaks, [len(positions)]]))
        self._before = edges  # how many lie before each run, and in all
        self._first = positions[edges[:-1]].astype(np.int64)
        # Where each run ends; the place in front is for positions below all of them.
        self._end = np.concatenate([[_NOWHERE], self._first + np.diff(edges)])

    def __len__(self) -> int:
        return int(self._before[-1])

    def position(self, ordinal: Ints) -> Ints:
        """The position of each, given its number."""
        run = np.searchsorted(self._before, ordinal, side="right") - 1
        return np.asarray(self._first[run] + (ordinal - self._before[run]), dtype=np.int64)

    def below(self, position: Ints) -> Ints:
        """How many lie below each position."""
        begun = np.searchsorted(self._first, position, side="left")
        above: Ints = np.maximum(self._end[begun] - position, 0)
        return np.asarray(self._before[begun] - above, dtype=np.int64)

    def tobytes(self) -> bytes:
        """The positions as bytes, the same for the same positions."""
        runs = np.concatenate([self._first, self._before])
        return bytes(runs.astype("<i8").tobytes())
