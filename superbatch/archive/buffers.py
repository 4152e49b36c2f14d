"""Large buffers that are used again.

Memory that is touched for the first time costs 10 to 50 times a copy into memory that is warm, because the
system has to find and clear each page. A loaded sequence is tens of megabytes and lives for a fraction
of a second, so its memory is kept for the next one.
"""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np
import numpy.typing as npt

_GRAIN = 1 << 20


class Buffers:
    """Gives out arrays; when the last reference to one is gone, its memory serves the next.

    Only the array that was given out keeps the memory reserved: a view of it does not. Whoever
    hands on a view holds on to the array too.

    Parameters
    ----------
    most_idle : int
        Buffers kept while nobody uses them. Never more than were in use at once before, so that this
        bounds their number, not their size.
    """

    def __init__(self, most_idle: int = 64) -> None:
        # Appending to and popping from a deque need no lock; a finalizer may run at any moment,
        # in a thread that is inside of empty() too.
        self._idle: deque[memoryview] = deque(maxlen=most_idle)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        """An uninitialised C-contiguous array."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        memory = self._take(size)
        array: npt.NDArray[np.generic] = np.ndarray(shape, dtype, buffer=memory)
        weakref.finalize(array, self._idle.append, memory)
        return array

    def _take(self, size: int) -> memoryview:
        for _ in range(len(self._idle)):
            try:
                memory = self._idle.popleft()
            except IndexError:
                break
            if size <= len(memory) <= 2 * size + _GRAIN:
                return memory
            self._idle.append(memory)
        rounded = -(-max(size, 1) // _GRAIN) * _GRAIN
        return np.empty(rounded, np.uint8).data
