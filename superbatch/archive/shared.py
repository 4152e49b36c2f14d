"""Arrays that are in memory already, shared with the loaders instead of sent to each."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from superbatch.slots import SHARED_MEMORY

# Of what is free: slots need the rest, and cannot do without.
_SHARE = 0.25


class SharedArray:
    """A copy of an array in shared memory, without a name; loaders inherit its descriptor.

    Parameters
    ----------
    values : array
        Numbers, dates or bools.

    Raises
    ------
    OSError
        There is too little shared memory.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        folder = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else tempfile.gettempdir()
        if values.nbytes > _SHARE * shutil.disk_usage(folder).free:
            raise OSError("too little shared memory")
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, prefix="superbatch-")  # noqa: SIM115
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), 0, values.nbytes)
        else:
            self._file.truncate(values.nbytes)
        self.descriptor = self._file.fileno()
        self.values = _view(self.descriptor, values.shape, values.dtype.str)
        self.values[...] = values

    def __reduce__(self) -> tuple[Any, ...]:
        return attach, (self.descriptor, self.values.shape, self.values.dtype.str)


def attach(descriptor: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """The values, in a process that has inherited the descriptor."""
    return _view(descriptor, shape, dtype)


def _view(descriptor: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, buffer=mmap.mmap(descriptor, size))
