"""How the windows along one dimension are divided among chunk sequences.

The chunks along a dimension are taken in blocks of ``per_sequence``. Each window belongs to exactly
one *item*: the interior item of a block holds the windows that lie inside the block, the border item
after it those that begin in it and end beyond it. So every window has one owner, windows across
borders included, and nothing has to be weighted; and a border item loads only the chunks around
the border. A chunk sequence is one item along each windowed dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from superbatch.archive.chunks import Chunks
from superbatch.archive.starts import Starts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Items along an axis, in groups that own equally many valid windows each.

    Attributes
    ----------
    each : int64 array, shape (groups,)
        Windows that every item of the group owns; several groups may have the same number.
    number : int64 array, shape (groups,)
        Items in the group.
    """

    each: Ints
    number: Ints
    _first: Ints
    _listed: Ints | None

    @property
    def items(self) -> int:
        """Items in all groups."""
        return int(self.number.sum())

    def item(self, group: Ints, member: Ints) -> Ints:
        """Each member of a group, by its number in the group."""
        place = self._first[group]
        # Without a list, a group is a run of items of one kind: interiors or borders.
        return place + 2 * member if self._listed is None else self._listed[place + member]


@dataclass(frozen=True, eq=False)
class Axis:
    """The windows along one dimension and the items that own them.

    A window is named by its *start*, the position of its first element. Item ``2 * b`` is the
    interior of block ``b``, item ``2 * b + 1`` the border after it.

    Parameters
    ----------
    name : str
        The dimension.
    chunks : Chunks
        The chunk borders of the reference array along it.
    width : int
        Positions that a window covers: the union over the modalities.
    per_sequence : int
        Chunks in a block.
    starts : Starts, optional
        The valid starts; None where every start that fits is valid.
    weights : float64 array, optional
        A positive weight for each of ``starts``; None for equal weights.
    """

    name: str
    chunks: Chunks
    width: int
    per_sequence: int
    starts: Starts | None = None
    weights: Floats | None = None
    _cumulative: Floats | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if self.weights is not None:
            cumulative = np.concatenate([[0.0], np.cumsum(self.weights)])
            object.__setattr__(self, "_cumulative", cumulative)

    @property
    def total(self) -> int:
        """Number of valid windows along this dimension."""
        if self.starts is not None:
            return len(self.starts)
        return max(0, self.chunks.length - self.width + 1)

    @property
    def blocks(self) -> int:
        """Number of blocks that the chunks are taken in."""
        return -(-self.chunks.count // self.per_sequence)

    def start(self, ordinal: Ints) -> Ints:
        """The start of each valid window, given its number among the valid ones."""
        return ordinal if self.starts is None else self.starts.position(ordinal)

    def owner(self, start: Ints) -> Ints:
        """The item that owns each start."""
        block = self.chunks.index(start) // self.per_sequence
        inside = start + self.width <= self._block_end(block)
        return 2 * block + np.where(inside, 0, 1)

    def span(self, item: Ints) -> tuple[Ints, Ints]:
        """First and last start (inclusive) that each item can own, valid or not."""
        block, border = item // 2, item % 2 == 1
        begin, end = self._block_start(block), self._block_end(block)
        last_start = self.chunks.length - self.width
        first = np.where(border, np.maximum(begin, end - self.width + 1), begin)
        last = np.where(border, np.minimum(end - 1, last_start), end - self.width)
        return first, last

    def bounds(self, item: Ints) -> tuple[Ints, Ints]:
        """The valid windows of each item, as a half-open range of their numbers; it may be empty."""
        first, last = self.span(item)
        if self.starts is None:
            return first, np.maximum(last + 1, first)
        low, high = self.starts.below(first), self.starts.below(last + 1)
        return low, np.maximum(high, low)

    def locate(self, u: Floats) -> Ints:
        """The window (its number) at each place ``u`` in ``[0, 1)`` of the total weight."""
        if self._cumulative is None:
            return np.minimum((u * self.total).astype(np.int64), self.total - 1)
        return self._weighted(u * self._cumulative[-1], np.int64(0), np.int64(self.total))

    def draw(self, low: Ints, high: Ints, rng: np.random.Generator) -> Ints:
        """One window (its number) out of each half-open range, by weight."""
        if self._cumulative is None:
            return rng.integers(low, high)
        begin, end = self._cumulative[low], self._cumulative[high]
        return self._weighted(begin + rng.random(len(low)) * (end - begin), low, high)

    def groups(self) -> Groups:
        """All items that own at least one valid window, sorted by how many each owns.

        On a regular grid where every start is valid this is arithmetic; else it takes time and
        memory in proportion to the number of blocks.
        """
        if self.starts is None and self.chunks.size is not None:
            # All blocks are alike but the first and that of the last start; those beyond own nothing.
            last = int(self.chunks.index(self.total - 1)) // self.per_sequence
            edges = np.unique([0, min(1, last), last, last + 1])
            first = np.concatenate([2 * edges[:-1], 2 * edges[:-1] + 1])
            number = np.tile(np.diff(edges), 2)
            low, high = self.bounds(first)
            keep = high > low
            return Groups((high - low)[keep], number[keep], first[keep], None)
        items = np.arange(2 * self.blocks, dtype=np.int64)
        low, high = self.bounds(items)
        counts = high - low
        order = np.argsort(counts, kind="stable")[np.count_nonzero(counts <= 0) :]
        each, place, number = np.unique(counts[order], return_index=True, return_counts=True)
        return Groups(each, number.astype(np.int64), place.astype(np.int64), items[order])

    def tobytes(self) -> bytes:
        """All that decides which windows there are and how likely they are, as bytes."""
        chunks = self.chunks
        parts = [repr((self.name, chunks.length, self.width, self.per_sequence)).encode()]
        if chunks.size is not None:
            parts.append(repr((chunks.size, chunks.offset)).encode())
        else:
            parts.append(chunks.start(np.arange(chunks.count + 1)).astype("<i8").tobytes())
        if self.starts is not None:
            parts.append(self.starts.tobytes())
        if self.weights is not None:
            parts.append(self.weights.astype("<f8").tobytes())
        return b"|".join(parts)

    def _weighted(self, place: Floats, low: Ints | np.int64, high: Ints | np.int64) -> Ints:
        assert self._cumulative is not None
        found = np.searchsorted(self._cumulative, place, side="right") - 1
        # Rounding may put a place at the very end of its range just outside of it.
        return np.clip(found, low, high - 1).astype(np.int64)

    def _block_start(self, block: Ints) -> Ints:
        return self.chunks.start(np.minimum(block * self.per_sequence, self.chunks.count))

    def _block_end(self, block: Ints) -> Ints:
        return self.chunks.start(np.minimum((block + 1) * self.per_sequence, self.chunks.count))
