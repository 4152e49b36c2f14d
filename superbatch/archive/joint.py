"""Two axes whose valid windows depend on each other, such as sites whose series have gaps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from superbatch.archive.sequences import Axis, Groups
from superbatch.errors import ArgumentError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class JointAxis:
    """The valid windows of two axes together; to the plan, one axis.

    A window is named by one number, ``start * other + other_start``. Valid windows are numbered sequence by
    sequence, so those of a sequence are neighbours; which they are is found out in the mask when it
    is needed, so nothing is listed.

    Parameters
    ----------
    first, second : Axis
        Without weights.
    valid : bool array, shape (first.total, second.total)
        By the numbers that the axes give to their own valid windows.
    """

    weights = None

    def __init__(self, first: Axis, second: Axis, valid: npt.NDArray[np.bool_]) -> None:
        if first.weights is not None or second.weights is not None:
            raise ArgumentError(
                "weights cannot be combined with places that are valid only at some times: leave out "
                'weights, or write nan="keep"'
            )
        self.first, self.second = first, second
        self.name = f"{first.name}, {second.name}"
        self.stride = second.chunks.length
        self._kinds = 2 * second.blocks
        self._valid = np.packbits(valid, axis=1)
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
        order = np.argsort(sequence, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(sequence[order])) + 1)
        for mine in groups:
            if not len(mine):
                continue
            low, high, begin, end = self._block(int(self._items[sequence[mine[0]]]))
            columns = np.flatnonzero(self._rows(low, high)[:, begin:end])
            row, column = np.divmod(columns[inside[mine]], end - begin)
            first, second = self.first.start(low + row), self.second.start(begin + column)
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
        """The window (its number) at each place ``u`` in ``[0, 1)`` of all."""
        return np.minimum((u * self.total).astype(np.int64), self.total - 1)

    def draw(self, low: Ints, high: Ints, rng: np.random.Generator) -> Ints:
        """One window (its number) out of each half-open range."""
        return rng.integers(low, high)

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

    def _count(self, valid: npt.NDArray[np.bool_]) -> None:
        """Valid windows of every sequence."""
        rows = np.arange(2 * self.first.blocks, dtype=np.int64)
        low, high = self.first.bounds(rows)
        begin, end = self.second.bounds(np.arange(self._kinds, dtype=np.int64))
        columns = np.zeros(valid.shape[1] + 1, dtype=np.int64)
        items, counts = [], []
        for row, a, b in zip(rows.tolist(), low.tolist(), high.tolist(), strict=True):
            if a == b:
                continue
            np.cumsum(valid[a:b].sum(axis=0), out=columns[1:])
            held = columns[end] - columns[begin]
            full = np.flatnonzero(held)
            items.append(row * self._kinds + full)
            counts.append(held[full])
        self._items = np.concatenate(items) if items else np.empty(0, dtype=np.int64)
        held = np.concatenate(counts) if counts else np.empty(0, dtype=np.int64)
        self._edges = np.concatenate([[0], np.cumsum(held)]).astype(np.int64)

    def _block(self, item: int) -> tuple[int, int, int, int]:
        first, second = divmod(item, self._kinds)
        low, high = self.first.bounds(np.array([first]))
        begin, end = self.second.bounds(np.array([second]))
        return int(low[0]), int(high[0]), int(begin[0]), int(end[0])

    def _rows(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        width = self.second.total
        return np.unpackbits(self._valid[low:high], axis=1, count=width).astype(bool)
