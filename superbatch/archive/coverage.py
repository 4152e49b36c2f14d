"""Every window exactly once: the order of an epoch of ``coverage="once"``, without listing it.

The windows of each chunk sequence are shuffled and dealt into *visits* of ``visit`` windows. What does
not fill a visit is put in line, sequence after sequence, and cut into visits too. The visits are
shuffled, and the epoch is their concatenation; only its very last visit may be short. All of this is
arithmetic on the position in the epoch: nothing is stored but one row for each distinct number of
windows that a sequence holds, so the cost does not depend on the number of windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from superbatch import permute, seeds
from superbatch.archive.joint import JointAxis
from superbatch.archive.sequences import Axis

Ints = npt.NDArray[np.int64]


class Once:
    """The order in which an epoch serves each valid window once.

    Parameters
    ----------
    axes : sequence of Axis
        The windowed dimensions, without weights.
    visit : int
        Windows that are cut from a chunk sequence each time it is loaded.
    shuffle : bool
        False: the windows come in their natural order, the last dimension running fastest.
    """

    def __init__(self, axes: Sequence[Axis | JointAxis], visit: int, shuffle: bool) -> None:
        self.axes = tuple(axes)
        self.visit = visit
        self.shuffle = shuffle
        self.total = 1
        for axis in axes:
            self.total *= axis.total
        if shuffle:
            self._group()

    def windows(self, place: Ints, seed: int, epoch: int) -> Ints:
        """The windows at some places of the epoch.

        Parameters
        ----------
        place : int64 array, shape (n,)
            Places in ``[0, total)``.
        seed, epoch : int
            Which order.

        Returns
        -------
        int64 array, shape (n, axes)
            The number of the window along each axis, as ``Axis.start`` takes it.
        """
        if not self.shuffle:
            shape = tuple(axis.total for axis in self.axes)
            return np.stack(np.unravel_index(place, shape), axis=-1).astype(np.int64)
        group, item, rank = self._find(place, seed, epoch)
        keys = seeds.mix(
            np.uint64(seeds.key(seed, "items", epoch))
            + seeds.mix((self._item_base[group] + item).astype(np.uint64))
        )
        rank = permute.permute(rank, self._size[group], keys)
        return self._unravel(group, item, rank)

    def _group(self) -> None:
        """Sort the sequences by the number of windows that they hold along each axis."""
        per_axis = [axis.groups() for axis in self.axes]
        shape = tuple(len(groups.each) for groups in per_axis)
        self._per_axis = per_axis
        # For each combination: the group along each axis, its items, and the windows of each item.
        self._along = np.indices(shape, dtype=np.int64).reshape(len(shape), -1)
        pairs = list(zip(per_axis, self._along, strict=True))
        self._members = np.stack([groups.number[g] for groups, g in pairs])
        self._widths = np.stack([groups.each[g] for groups, g in pairs])
        self._size = self._widths.prod(axis=0)
        count = self._members.prod(axis=0)
        self._item_base = np.cumsum(count) - count
        self._full = self._size // self.visit
        self._left = self._size - self._full * self.visit
        self._full_edges = np.concatenate([[0], np.cumsum(count * self._full)])
        self._left_edges = np.concatenate([[0], np.cumsum(count * self._left)])

    def _find(self, place: Ints, seed: int, epoch: int) -> tuple[Ints, Ints, Ints]:
        """Group, sequence within the group, and window within the sequence, of each place."""
        number, offset = np.divmod(place, self.visit)
        complete = self.total // self.visit
        visits, which = np.unique(number, return_inverse=True)
        inside = visits < complete
        if complete:
            key = seeds.key(seed, "visits", epoch)
            visits[inside] = permute.permute(visits[inside], complete, key)
        shuffled = visits[which]
        full = int(self._full_edges[-1])
        group, item, rank = (np.empty_like(place) for _ in range(3))

        whole = shuffled < full
        visit = shuffled[whole]
        g = np.searchsorted(self._full_edges, visit, side="right") - 1
        item[whole], part = np.divmod(visit - self._full_edges[g], self._full[g])
        group[whole], rank[whole] = g, part * self.visit + offset[whole]

        line = (shuffled[~whole] - full) * self.visit + offset[~whole]
        g = np.searchsorted(self._left_edges, line, side="right") - 1
        item[~whole], part = np.divmod(line - self._left_edges[g], self._left[g])
        group[~whole], rank[~whole] = g, self._full[g] * self.visit + part
        return group, item, rank

    def _unravel(self, group: Ints, item: Ints, rank: Ints) -> Ints:
        out = np.empty((len(group), len(self.axes)), dtype=np.int64)
        for i in reversed(range(len(self.axes))):
            item, member = np.divmod(item, self._members[i, group])
            rank, step = np.divmod(rank, self._widths[i, group])
            sequence = self._per_axis[i].item(self._along[i, group], member)
            out[:, i] = self.axes[i].bounds(sequence)[0] + step
        return out
