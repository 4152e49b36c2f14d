"""A lock between processes that the system opens again when its holder dies."""

from __future__ import annotations

import fcntl
from types import TracebackType


class FileLock:
    """An exclusive lock on a file that several processes have open.

    A semaphore stays taken for ever when its holder is killed, and every other loader then waits. The
    system releases a record lock (POSIX ``fcntl``) when the process that holds it ends. It does not
    exclude threads of one process from each other.

    Parameters
    ----------
    descriptor : int
        An open, writable file; it may be inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
