"""Fetching the stored bytes of chunks, into memory that each thread uses again and again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import _get_loop
from zarr.storage import LocalStore

from superbatch.archive.decode import Bytes

# First byte and the one after the last. A negative first byte counts from the end.
Range = tuple[int, int]
Request = tuple[str, Range | None]

# What Zarr's own local store takes for a chunk that was never written.
_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_own = threading.local()


class Fetching(threading.local):
    """How long this thread has waited for bytes, in seconds."""

    seconds = 0.0


fetching = Fetching()

# The key that each thread waits for, so that one that never comes can be named from another thread.
awaited: dict[int, str] = {}


def scratch(purpose: str, size: int) -> Bytes:
    """Memory of this thread, `size` bytes of it, that keeps its pages from use to use."""
    kept: Bytes | None = getattr(_own, purpose, None)
    if kept is None or kept.nbytes < size:
        # Compressed chunks vary in size: room to spare saves new memory for each that is larger.
        kept = np.empty(size + size // 4, np.uint8)
        setattr(_own, purpose, kept)
    return kept[:size]


class Fetcher(Protocol):
    """Gives the bytes behind keys."""

    def fetch(self, requests: Sequence[Request], ahead: int) -> Iterator[Bytes | None]:
        """The bytes of each request in turn, or None where there are none.

        What it gives is good until the next is asked for. At most `ahead` are held at a time.
        """
        ...

    def exists(self, key: str) -> bool:
        """Whether there is anything behind a key."""
        ...


def fetcher(store: Store, path: str) -> Fetcher:
    """The way to read from a store that costs least."""
    return LocalBytes(store, path) if type(store) is LocalStore else StoreBytes(store, path)


class LocalBytes:
    """Reads files on the calling thread, one after the other.

    Reading into memory that is warm was measured to be as fast as mapping the file, and a file
    that is cut short meanwhile gives an error, where a mapping ends the process.
    """

    def __init__(self, store: LocalStore, path: str) -> None:
        self.folder = os.path.join(os.path.abspath(store.root), path)

    def fetch(self, requests: Sequence[Request], ahead: int) -> Iterator[Bytes | None]:
        opened, descriptor, size = None, -1, 0
        try:
            for key, part in requests:
                if key != opened:
                    if descriptor >= 0:
                        os.close(descriptor)
                    opened, descriptor = key, -1
                    descriptor = self._open(key)
                    size = os.fstat(descriptor).st_size if descriptor >= 0 else 0
                yield None if descriptor < 0 else _read(descriptor, size, part)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _open(self, key: str) -> int:
        try:
            return os.open(f"{self.folder}/{key}", os.O_RDONLY | os.O_CLOEXEC)
        except _ABSENT:
            return -1

    def exists(self, key: str) -> bool:
        return os.path.exists(f"{self.folder}/{key}")


def _read(descriptor: int, size: int, part: Range | None) -> Bytes:
    low, high = part or (0, size)
    if low < 0:
        low, high = max(0, size + low), size
    if not low <= high <= size:
        raise EOFError(f"bytes {low} to {high} were asked of a file of {size} bytes")
    data = scratch("encoded", high - low)
    done = 0
    while done < data.nbytes:
        count = os.preadv(descriptor, [data[done:].data], low + done)
        if count == 0:
            raise EOFError(f"the file ended at byte {low + done}, before {high}")
        done += count
    return data


class StoreBytes:
    """Reads through any Zarr store: several requests are on their way while one is decoded."""

    def __init__(self, store: Store, path: str) -> None:
        self.store = store
        self.prefix = f"{path}/" if path else ""

    def fetch(self, requests: Sequence[Request], ahead: int) -> Iterator[Bytes | None]:
        waiting = iter(requests)
        running = deque(self._start(*request) for request in islice(waiting, ahead))
        try:
            while running:
                found = running.popleft().result()
                running.extend(self._start(*request) for request in islice(waiting, 1))
                yield None if found is None else np.asarray(found.as_numpy_array()).view(np.uint8)
        finally:
            for request in running:
                request.cancel()

    def _start(self, key: str, part: Range | None) -> Any:
        request: Any = None
        if part is not None:
            low, high = part
            request = SuffixByteRequest(-low) if low < 0 else RangeByteRequest(low, high)
        get = self.store.get(self.prefix + key, default_buffer_prototype(), request)
        return asyncio.run_coroutine_threadsafe(_finish(get), _get_loop())

    def exists(self, key: str) -> bool:
        asked = _finish(self.store.exists(self.prefix + key))
        return bool(asyncio.run_coroutine_threadsafe(asked, _get_loop()).result())


async def _finish(awaitable: Any) -> Any:
    return await awaitable
