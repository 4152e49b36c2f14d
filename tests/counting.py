"""A store that writes down what is read from it. Imported by loaders too, so it needs little."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore


class CountingStore(LocalStore):
    """Appends a line ``key first last size`` to ``log`` for each read of a chunk or shard.

    ``delay`` seconds are added to each: a store that is slow. ``failing`` is the share of reads that fail
    as a connection does that breaks: they are written down with ``FAILED`` before the key.
    """

    log: str = ""
    delay: float = 0.0
    failing: float = 0.0

    @classmethod
    def at(cls, folder: Path, log: Path, delay: float = 0.0, failing: float = 0.0) -> CountingStore:
        store = cls(folder, read_only=True)
        store.log, store.delay, store.failing = str(log), delay, failing
        return store

    def __getstate__(self) -> dict[str, Any]:
        return {
            "log": self.log,
            "delay": self.delay,
            "failing": self.failing,
            "root": self.root,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["root"], read_only=True)  # type: ignore[misc]
        self.log, self.delay, self.failing = state["log"], state["delay"], state["failing"]

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        if not key.endswith((".json", ".zarray", ".zattrs", ".zgroup")):
            time.sleep(self.delay)
            try:
                size = os.path.getsize(os.path.join(self.root, key))
            except FileNotFoundError:
                size = 0
            begin, end = 0, size
            if isinstance(byte_range, RangeByteRequest):
                begin, end = byte_range.start, byte_range.end
            elif isinstance(byte_range, OffsetByteRequest):
                begin = byte_range.offset
            elif isinstance(byte_range, SuffixByteRequest):
                begin = max(0, size - byte_range.suffix)
            fails = random.random() < self.failing
            line = f"{'FAILED ' if fails else ''}{key} {begin} {end} {size}\n".encode()
            descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
            if fails:
                raise ConnectionResetError("the connection broke")
        return await super().get(key, prototype, byte_range)


def reads(log: Path) -> list[tuple[str, int, int, int]]:
    """What was read: key, first byte, one past the last, size of the file."""
    if not log.exists():
        return []
    found = []
    for line in log.read_text().splitlines():
        key, *numbers = line.rsplit(" ", 3)
        begin, end, size = map(int, numbers)
        found.append((key, begin, end, size))
    return found
