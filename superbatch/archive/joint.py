"""Two axes whose valid windows depend on each other, such as sites whose series have gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.sequences import Axis, Groups
from superbatch.errors import ArgumentError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# Of every byte: how many bits are set, and where the first, second, ... of them is, the highest bit first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
_ONES = _BITS.sum(axis=1, dtype=np.uint8)
_PLACE = np.argsort(1 - _BITS, axis=1, kind="stable").astype(np.uint8)

# Windows are counted in pieces of about so many, so that what is in between stays small.
_PIECE = 1 << 22
# Counts by row are kept for this many sequences, those drawn from last.
_KEPT = 64


class JointAxis:
    """The valid windows of two axes together; to the plan, one axis.

    A window is named by one number, ``start * other + other_start``. Valid windows are numbered sequence by
    sequence, so those of a sequence are neighbours; which they are is found out in the mask, one bit
    for each pair, when it is needed, so nothing is listed.

    Parameters
    ----------
    first, second : Axis
        The first may have weights.
    valid : bool array, shape (first.total, second.total)
        By the numbers that the axes give to their own valid windows.
    """

    def __init__(self, first: Axis, second: Axis, valid: npt.NDArray[np.bool_]) -> None:
        if second.weights is not None:
            raise ArgumentError(
                f"weights along {second.name!r} cannot be combined with windows that are valid at some "
                f"{first.name!r} only: leave out weights"
            )
        self.first, self.second = first, second
        self.name = f"{first.name}, {second.name}"
        self.stride = second.chunks.length
        self.weights = first.weights
        self._kinds = 2 * second.blocks
        self._valid: Bytes = np.packbits(valid, axis=1)
        self._counts: dict[int, Ints] = {}
        self._count(valid)

    @property
    def total(self) -> int:
        """Number of valid windows."""
        return int(self._edges[-1])

    @property
    def blocks(self) -> int:
        """Number of sequences that own a window."""
        return len(self._items)

    def split(self, start: Ints) -> tuple[Ints, Ints]:
        """The starts along both axes."""
        first, second = np.divmod(start, self.stride)
        return first, second

    def start(self, ordinal: Ints) -> Ints:
        """The start of each valid window, given its number among the valid ones."""
        sequence = np.searchsorted(self._edges, ordinal, side="right") - 1
        inside = ordinal - self._edges[sequence]
        out = np.empty(len(ordinal), dtype=np.int64)
        for number, (low, high, begin, end), mine in self._blocks(sequence):
            ends = self._row_ends(number, low, high, begin, end)
            row = np.searchsorted(ends, inside[mine], side="right")
            before = np.where(row > 0, ends[row - 1], 0)
            column = self._nth(low + row, begin, end, inside[mine] - before)
            first, second = self.first.start(low + row), self.second.start(column)
            out[mine] = first * self.stride + second
        return out

    def owner(self, start: Ints) -> Ints:
        """The item that owns each start."""
        first, second = self.split(start)
        return self.first.owner(first) * self._kinds + self.second.owner(second)

    def split_item(self, item: Ints) -> tuple[Ints, Ints]:
        """The items along both axes."""
        first, second = np.divmod(item, self._kinds)
        return first, second

    def bounds(self, item: Ints) -> tuple[Ints, Ints]:
        """The valid windows of each item, as a half-open range of their numbers; it may be empty."""
        place = np.searchsorted(self._items, item)
        known = place < len(self._items)
        known[known] = self._items[place[known]] == item[known]
        low = np.where(known, self._edges[np.minimum(place, len(self._items))], 0)
        high = np.where(known, self._edges[np.minimum(place + 1, len(self._items))], 0)
        return low, high

    def locate(self, u: Floats) -> Ints:
        """The window (its number) at each place ``u`` in ``[0, 1)`` of the total weight."""
        if self._mass is None:
            return np.minimum((u * self.total).astype(np.int64), self.total - 1)
        place = u * self._mass[-1]
        sequence = np.searchsorted(self._mass, place, side="right") - 1
        sequence = np.minimum(sequence, len(self._items) - 1)
        return self._weighted(sequence, place - self._mass[sequence])

    def draw(self, low: Ints, high: Ints, rng: np.random.Generator) -> Ints:
        """One window (its number) out of each half-open range, by weight."""
        if self._mass is None:
            return rng.integers(low, high)
        sequence = np.searchsorted(self._edges, low, side="right") - 1
        return self._weighted(sequence, rng.random(len(low)) * np.diff(self._mass)[sequence])

    def shares(self) -> tuple[Floats, Floats]:
        """Of the items that own a window: the share of all windows, by weight, and how many have it."""
        if self._mass is None:
            groups = self.groups()
            return groups.each / self.total, groups.number.astype(np.float64)
        return np.diff(self._mass) / self._mass[-1], np.ones(len(self._items))

    def groups(self) -> Groups:
        """The items that own at least one valid window, by how many each owns."""
        counts = np.diff(self._edges)
        each, inverse, number = np.unique(counts, return_inverse=True, return_counts=True)
        order = np.argsort(inverse, kind="stable")
        first = np.cumsum(number) - number
        return Groups(each, number, first, self._items[order])

    def tobytes(self) -> bytes:
        """All that decides which windows there are, as bytes."""
        return b"|".join([self.first.tobytes(), self.second.tobytes(), self._valid.tobytes()])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counts": {}}

    def _count(self, valid: npt.NDArray[np.bool_]) -> None:
        """Valid windows of every sequence, and their weight."""
        rows, low, high = _filled(self.first)
        columns, begin, _ = _filled(self.second)
        items, counts, masses = [], [], []
        piece = max(1, _PIECE // max(1, valid.shape[1]))
        ones, at = valid.view(np.uint8), 0
        while at < len(rows):
            # As many rows as make up a piece, but those of one item are not divided.
            to = max(at + 1, int(np.searchsorted(high, low[at] + piece, side="right")))
            part = ones[low[at] : high[to - 1]]
            edges = low[at:to] - low[at]
            # Adding up the rows of one item at a time is many times as fast as np.add.reduceat.
            held = np.stack(
                [
                    np.add.reduce(ones[a:b], axis=0, dtype=np.uint32)
                    for a, b in zip(low[at:to].tolist(), high[at:to].tolist(), strict=True)
                ]
            )
            held = np.add.reduceat(held, begin, axis=1, dtype=np.int64)
            number, kind = np.nonzero(held)
            items.append(rows[at:to][number] * self._kinds + columns[kind])
            counts.append(held[number, kind])
            if self.first.weights is not None:
                by_row = np.add.reduceat(part, begin, axis=1, dtype=np.uint32)
                by_row = by_row * self.first.weights[low[at] : high[to - 1], None]
                masses.append(np.add.reduceat(by_row, edges, axis=0)[number, kind])
            at = to
        self._items = np.concatenate(items) if items else np.empty(0, dtype=np.int64)
        owned = np.concatenate(counts) if counts else np.empty(0, dtype=np.int64)
        self._edges = np.concatenate([[0], np.cumsum(owned)]).astype(np.int64)
        self._mass = (
            None if not masses else np.concatenate([[0.0], np.cumsum(np.concatenate(masses))])
        )

    def _blocks(self, sequence: Ints) -> Iterator[tuple[int, list[int], Ints]]:
        """For each distinct sequence: its number, its rows and columns, half-open, and where it stands."""
        order = np.argsort(sequence, kind="stable")
        numbers, begin = np.unique(sequence[order], return_index=True)
        first, second = self.split_item(self._items[numbers])
        places = np.stack([*self.first.bounds(first), *self.second.bounds(second)], axis=-1)
        ends = np.append(begin, len(sequence))
        for each, number in enumerate(numbers.tolist()):
            yield number, places[each].tolist(), order[ends[each] : ends[each + 1]]

    def _row_ends(self, number: int, low: int, high: int, begin: int, end: int) -> Ints:
        """How many valid windows of a sequence there are up to the end of each row."""
        known = self._counts.get(number)
        if known is None:
            if len(self._counts) >= _KEPT:
                self._counts.clear()
            held = _ONES[self._bytes(slice(low, high), begin, end)].sum(axis=1, dtype=np.int64)
            known = self._counts[number] = np.cumsum(held)
        return known

    def _bytes(self, rows: Any, begin: int, end: int) -> Bytes:
        """The bits of some rows between two columns, whole bytes; bits outside are 0."""
        part = self._valid[rows, begin // 8 : -(-end // 8)].copy()
        part[:, 0] &= 0xFF >> begin % 8
        if end % 8:
            part[:, -1] &= 0xFF << (8 - end % 8) & 0xFF
        return part

    def _nth(self, rows: Ints, begin: int, end: int, n: Ints) -> Ints:
        """The column of the valid window number ``n`` of each row."""
        part = self._bytes(rows, begin, end)
        ends = np.cumsum(_ONES[part], axis=1, dtype=np.int64)
        byte = (ends <= n[:, None]).sum(axis=1)
        each = np.arange(len(rows))
        held = part[each, byte]
        bit = _PLACE[held, n - (ends[each, byte] - _ONES[held])]
        return np.asarray((begin // 8 + byte) * 8 + bit, dtype=np.int64)

    def _weighted(self, sequence: Ints, place: Floats) -> Ints:
        """The window at a place within the weight of each sequence."""
        assert self.first.weights is not None
        out = np.empty(len(sequence), dtype=np.int64)
        for number, (low, high, begin, end), mine in self._blocks(sequence):
            ends = self._row_ends(number, low, high, begin, end)
            held = np.diff(ends, prepend=0)
            weights = self.first.weights[low:high]
            mass = np.cumsum(weights * held)
            # Rounding may put a place at the very end just outside.
            row = np.minimum(
                np.searchsorted(mass, place[mine], side="right"), held.nonzero()[0][-1]
            )
            before = np.where(row > 0, mass[row - 1], 0.0)
            inside = ((place[mine] - before) / weights[row]).astype(np.int64)
            inside = np.clip(inside, 0, held[row] - 1)
            out[mine] = self._edges[number] + ends[row] - held[row] + inside
        return out


def _filled(axis: Axis) -> tuple[Ints, Ints, Ints]:
    """The items that own a window along one axis, and which, as half-open ranges: neighbours follow each other."""
    items = np.arange(2 * axis.blocks, dtype=np.int64)
    low, high = axis.bounds(items)
    filled = high > low
    return items[filled], low[filled], high[filled]
