"""Where the chunks of an array begin and end along one dimension.

An archive may have millions of chunks, so a regular grid is kept in closed form: nothing here
takes time or memory by the number of its chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class Chunks:
    """The chunk borders along one dimension.

    Build one with :meth:`regular` or :meth:`irregular`. Two are equal where they cut the same
    length at the same positions.

    Attributes
    ----------
    length : int
        Positions along the dimension.
    count : int
        Number of chunks.
    size : int or None
        Positions in each chunk but the first and the last, and the most in any; None where chunks
        are irregular.
    offset : int
        How many positions the first chunk lacks at its beginning; 0 where chunks are irregular.

    Examples
    --------
    >>> chunks = Chunks.regular(100, 36, offset=6)
    >>> chunks.count, chunks.start(np.arange(4)).tolist()
    (3, [0, 30, 66, 100])
    >>> chunks.index(np.array([29, 30])).tolist()
    [0, 1]
    """

    __slots__ = ("_starts", "count", "length", "offset", "size")

    length: int
    count: int
    size: int | None
    offset: int
    _starts: Positions | None

    def __init__(
        self, length: int, count: int, size: int | None, offset: int, starts: Positions | None
    ) -> None:
        self.length = length
        self.count = count
        self.size = size
        self.offset = offset
        self._starts = starts

    @classmethod
    def regular(cls, length: int, size: int, offset: int = 0) -> Chunks:
        """Equal chunks, the last one cut short where `length` ends.

        Parameters
        ----------
        length : int
            Positions along the dimension.
        size : int
            Positions in a whole chunk.
        offset : int
            How far into a chunk position 0 lies: the first border is at ``size - offset``.

        Raises
        ------
        ValueError
            Where `size` is not positive, `length` is negative or `offset` is not within a chunk.
        """
        if size < 1 or length < 0 or not 0 <= offset < size:
            raise ValueError(
                f"chunks need length >= 0, size >= 1 and 0 <= offset < size, "
                f"not length={length}, size={size}, offset={offset}"
            )
        count = -((-length - offset) // size) if length else 0
        # So few chunks do not tell the size of the grid they were cut from: keep the smallest, so
        # that equal borders are equal objects.
        if count <= 1:
            size, offset = max(length, 1), 0
        elif count == 2:
            first = size - offset
            size = max(first, length - first)
            offset = size - first
        return cls(length, count, size, offset, None)

    @classmethod
    def irregular(cls, sizes: Sequence[int] | Positions) -> Chunks:
        """Chunks of the given sizes; kept in closed form where they turn out to be regular.

        Parameters
        ----------
        sizes : sequence of int
            Positions in each chunk. Empty chunks are left out.

        Raises
        ------
        ValueError
            Where a size is negative.
        """
        counts = np.asarray(sizes, dtype=np.int64).reshape(-1)
        if counts.size and counts.min() < 0:
            raise ValueError(f"chunk sizes must not be negative, not {int(counts.min())}")
        counts = counts[counts > 0]
        length = int(counts.sum())
        if counts.size == 0:
            return cls.regular(0, 1)
        # Every border between two chunks lies on the grid of the first whole chunk.
        size = int(counts[1]) if counts.size > 2 else int(counts.max())
        offset = size - int(counts[0]) if counts.size > 1 else 0
        if 0 <= offset < size and (counts[1:-1] == size).all() and counts[-1] <= size:
            return cls.regular(length, size, offset)
        starts = np.zeros(counts.size + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        return cls(length, counts.size, None, 0, starts)

    def index(self, positions: Any) -> Positions:
        """Which chunk holds each position.

        Parameters
        ----------
        positions : array of int
            Positions in [0, length), of any shape.

        Returns
        -------
        array of int64
            The chunk of each, of the same shape.
        """
        where = np.asarray(positions, dtype=np.int64)
        if self._starts is None:
            assert self.size is not None
            return np.asarray((where + self.offset) // self.size, dtype=np.int64)
        return np.asarray(np.searchsorted(self._starts, where, side="right") - 1, dtype=np.int64)

    def start(self, chunk: Any) -> Positions:
        """First position of each chunk; that of the chunk after the last one is the length.

        Parameters
        ----------
        chunk : array of int
            Chunks in [0, count], of any shape.

        Returns
        -------
        array of int64
            The first position of each, of the same shape.
        """
        which = np.asarray(chunk, dtype=np.int64)
        if self._starts is None:
            assert self.size is not None
            return np.asarray(
                np.clip(which * self.size - self.offset, 0, self.length), dtype=np.int64
            )
        return np.asarray(self._starts[which], dtype=np.int64)

    def _key(self) -> tuple[Any, ...]:
        starts = None if self._starts is None else self._starts.tobytes()
        return (self.length, self.count, self.size, self.offset, starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunks) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self._starts is None:
            return f"Chunks.regular({self.length}, {self.size}, offset={self.offset})"
        sizes = np.diff(self._starts)
        shown = ", ".join(map(str, sizes[:4])) + (", ..." if sizes.size > 4 else "")
        return f"Chunks.irregular([{shown}], count={self.count})"
