"""Reading from a store that fails: what is tried again, what is given up, and what hangs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive import boxes as bx
from superbatch.archive.arrays import Array
from superbatch.archive.boxes import Box
from superbatch.archive.read_bytes import awaited

# The first wait before a read is tried again; each further one is twice as long.
_BACK_OFF = 0.2
# Libraries whose own exceptions mean that a store did not answer as it should.
_STORES = {"aiohttp", "azure", "botocore", "google", "httpx", "obstore", "requests", "urllib3"}
# Errors that trying again does not mend.
_FINAL = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
_FINAL_NAMES = (
    "NotFound",
    "Permission",
    "Unauth",
    "Credential",
    "NoSuch",
    "InvalidPath",
    "NotSupported",
)


@dataclass(frozen=True)
class Patience:
    """How a store's failures are met.

    Attributes
    ----------
    retries : int
        How often a read that failed for a passing reason is tried again.
    skip : bool
        Leave out what cannot be read, instead of raising.
    timeout : float
        Seconds after which a read counts as hanging.
    """

    retries: int = 3
    skip: bool = False
    timeout: float = 120.0


@dataclass
class Loaded:
    """A block in memory.

    Attributes
    ----------
    data : array
    bad : list of (Box, str)
        Parts that could not be read, and why; what ``data`` holds there means nothing.
    retries : int
        Reads that were tried again.
    seconds, fetch_seconds : float
        Time that reading took, and the part of it that bytes were waited for.
    """

    data: npt.NDArray[Any]
    bad: list[tuple[Box, str]] = field(default_factory=list)
    retries: int = 0
    seconds: float = 0.0
    fetch_seconds: float = 0.0

    def __sizeof__(self) -> int:
        """Bytes in memory: Dask weighs moving a block to an idle worker against waiting for its own."""
        return object.__sizeof__(self) + self.data.nbytes


class Reads:
    """The reads that are under way in this process, so that one that hangs can be named."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, Box, float]] = {}

    def begin(self, name: str, box: Box) -> None:
        """This thread begins to read."""
        self._running[threading.get_ident()] = name, box, time.monotonic()

    def end(self) -> None:
        """This thread has read."""
        self._running.pop(threading.get_ident(), None)

    def stuck(self, seconds: float) -> str | None:
        """What has been read for longer than this, in words; None where nothing has."""
        now = time.monotonic()
        for thread, (name, box, since) in list(self._running.items()):
            if now - since > seconds:
                key = awaited.get(thread)
                chunk = "" if key is None else f", chunk {key}"
                return f"{name} at {spell(box)}{chunk}, for {now - since:.0f} s"
        return None


reads = Reads()


def read(
    array: Array, part: Box, into: npt.NDArray[Any], origin: Box, patience: Patience, loaded: Loaded
) -> None:
    """Read a part of a block; what goes wrong is tried again, then raised or noted as bad."""
    try:
        _read_once_more(array, part, into, origin, patience, loaded)
    except Exception as error:
        if not patience.skip:
            raise
        chunks = _chunks(array, part)
        if len(chunks) == 1:
            loaded.bad.append((part, _reason(error)))
            return
        # One chunk of many is at fault: find out which, and keep the others.
        for chunk in chunks:
            read(array, chunk, into, origin, patience, loaded)


def transient(error: BaseException) -> bool:
    """Whether a read that failed like this may work when it is tried again."""
    seen: BaseException | None = error
    while seen is not None:
        name, module = type(seen).__name__, type(seen).__module__.partition(".")[0]
        if isinstance(seen, _FINAL) or any(word in name for word in _FINAL_NAMES):
            return False
        if isinstance(seen, (OSError, TimeoutError)) or module in _STORES:
            return True
        seen = seen.__cause__
    return False


def spell(box: Box) -> str:
    """A box as an index, for people."""
    return "[" + ", ".join(f"{low}:{high}" for low, high in box) + "]"


def _read_once_more(
    array: Array, part: Box, into: npt.NDArray[Any], origin: Box, patience: Patience, loaded: Loaded
) -> None:
    target = into[bx.slices(part, origin)]
    for attempt in range(patience.retries + 1):
        reads.begin(array.name, part)
        try:
            if target.flags.c_contiguous:
                array.read(part, out=target)
            else:
                target[...] = array.read(part)
            return
        except Exception as error:
            if attempt == patience.retries or not transient(error):
                if attempt:
                    error.add_note(f"after {attempt} more attempts")
                raise
        finally:
            reads.end()
        loaded.retries += 1
        time.sleep(_BACK_OFF * 2**attempt)


def _chunks(array: Array, part: Box) -> list[Box]:
    """The part, cut along the borders of chunks."""
    cut: list[Box] = [()]
    for (low, high), chunks in zip(part, array.chunks, strict=True):
        first, last = chunks.index(np.array([low, high - 1]))
        edges = chunks.start(np.arange(first, last + 2)).clip(low, high).tolist()
        cut = [(*box, edge) for box in cut for edge in _pairs(edges)]
    return cut


def _pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in itertools.pairwise(edges) if a < b]


def _reason(error: BaseException) -> str:
    """The error in one line, with its notes: they name the chunk."""
    lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return "; ".join(line.strip().replace("\n", " ") for line in lines)
