"""Slots: the memory that superbatches live in, allocated once and used again.

A slot is a file without a name in shared memory: it can collide with nothing, and it is gone when the
last process that holds it is gone, however that ended. Knows nothing of sampling.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from superbatch.errors import SuperbatchError
from superbatch.source import Fields

SHARED_MEMORY = "/dev/shm"
_ALIGN = 4096  # each array begins on a page of its own


class Layout:
    """Where the arrays of a superbatch lie in a slot.

    Parameters
    ----------
    fields : mapping of str to (shape, dtype)
        The arrays of one sample.
    samples : int
        Rows.
    """

    def __init__(self, fields: Fields, samples: int) -> None:
        self.fields, self.samples = fields, samples
        self.offsets: dict[str, int] = {}
        at = 0
        for name, (shape, dtype) in fields.items():
            self.offsets[name] = at
            size = samples * math.prod(shape) * dtype.itemsize
            at += -(-size // _ALIGN) * _ALIGN
        self.size = max(at, _ALIGN)

    def arrays(self, memory: Any) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a slot, as views of its memory."""
        return {
            name: np.ndarray(
                (self.samples, *shape), dtype, buffer=memory, offset=self.offsets[name]
            )
            for name, (shape, dtype) in self.fields.items()
        }


class SharedSlots:
    """Slots in shared memory, made by the training process and opened by its loaders.

    Parameters
    ----------
    layout : Layout
    count : int

    Raises
    ------
    SuperbatchError
        Shared memory has less room than the slots need.
    """

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout, self.count = layout, count
        folder = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else tempfile.gettempdir()
        self._check(folder)
        self._files: list[IO[bytes]] = []
        self._maps: list[mmap.mmap] = []
        try:
            for _ in range(count):
                file = tempfile.TemporaryFile(dir=folder, prefix="superbatch-")  # noqa: SIM115
                self._files.append(file)
                self._reserve(file, folder)
                self._maps.append(mmap.mmap(file.fileno(), layout.size))
        except BaseException:
            self.close()
            raise
        self.views = [layout.arrays(m) for m in self._maps]

    def descriptors(self) -> list[int]:
        """File descriptors, to be inherited by loaders."""
        return [file.fileno() for file in self._files]

    def close(self) -> None:
        """Give the memory back, as soon as no view of it is left."""
        self.views = []
        for file in self._files:
            file.close()
        # A map that still has views cannot be closed; it goes with the last of them.
        self._files, self._maps = [], []

    def _check(self, folder: str) -> None:
        need, free = self.layout.size * self.count, shutil.disk_usage(folder).free
        if need > free:
            raise self._too_small(folder, free)

    def _reserve(self, file: IO[bytes], folder: str) -> None:
        # Without this, memory that is not there is noticed when it is written to: by SIGBUS.
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, self.layout.size)
            else:
                file.truncate(self.layout.size)
        except OSError as error:
            raise self._too_small(folder, shutil.disk_usage(folder).free) from error

    def _too_small(self, folder: str, free: int) -> SuperbatchError:
        need = self.layout.size * self.count
        return SuperbatchError(
            f"{self.count} slots of {self.layout.size / 1e6:.0f} MB need {need / 1e6:.0f} MB of shared memory, "
            f"but {folder} has {free / 1e6:.0f} MB free: lower samples=, enlarge it (docker run "
            f'--shm-size={-(-need // 10**9)}g), or write transport="pipe"'
        )


class PrivateSlots:
    """Slots in the memory of one process, for transports that copy."""

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout, self.count = layout, count
        self.memory = [np.empty(layout.size, np.uint8) for _ in range(count)]
        self.views = [layout.arrays(memory) for memory in self.memory]

    def close(self) -> None:
        """Give the memory back, as soon as no view of it is left."""
        self.views, self.memory = [], []


def open_shared(layout: Layout, descriptors: Sequence[int]) -> list[dict[str, npt.NDArray[Any]]]:
    """The slots in a loader, from the descriptors that it inherited."""
    views = []
    for descriptor in descriptors:
        views.append(layout.arrays(mmap.mmap(descriptor, layout.size)))
        os.close(descriptor)
    return views
