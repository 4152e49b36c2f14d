"""Reading boxes chunk by chunk: each is decompressed once, straight to where it belongs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from superbatch.archive.decode import Bytes, Layout, Shard, layout
from superbatch.archive.read_bytes import (
    Fetcher,
    Request,
    StoreBytes,
    awaited,
    fetcher,
    fetching,
    scratch,
)

# Most bytes, as they are when decoded, of the requests to a remote store that wait at a time.
AHEAD_BYTES = 256 << 20


@dataclass(frozen=True)
class Piece:
    """The positions that one chunk has of a range, along one axis."""

    chunk: int
    inside: slice
    outside: slice


@dataclass(frozen=True)
class Block:
    """The part of a box that lies in one chunk."""

    chunk: tuple[int, ...]
    inside: tuple[slice, ...]
    outside: tuple[slice, ...]


def pieces(positions: range, size: int) -> list[Piece]:
    """The chunks of `size` positions that hold these rising positions, and where those go."""
    found = []
    done, step = 0, positions.step
    while done < len(positions):
        chunk, begin = divmod(positions[done], size)
        count = min(len(positions) - done, -(-(size - begin) // step))
        inside = slice(begin, begin + (count - 1) * step + 1, step)
        found.append(Piece(chunk, inside, slice(done, done + count)))
        done += count
    return found


def direct(metadata: Any, store: Any, path: str) -> Direct | None:
    """A direct reader of this array, or None where its chunks need Zarr's own pipeline."""
    stored = layout(metadata)
    return None if stored is None else Direct(metadata, fetcher(store, path), stored)


class Direct:
    """Reads boxes of a stored array whose layout is known, on the calling thread."""

    def __init__(self, metadata: Any, source: Fetcher, stored: Layout) -> None:
        self._metadata = metadata
        self._source = source
        self._layout = stored

    def read(self, part: Sequence[range], into: np.ndarray[Any, Any]) -> None:
        """Read stored positions, which rise along each axis, into an array of their shape.

        Raises
        ------
        FileNotFoundError
            A chunk is missing and so is the array's metadata: there is no array any more. Where
            only the chunk is missing, its values are the fill value.
        Exception
            What the store or the codec raises, with a note that names the chunk.
        """
        along = [pieces(at, n) for at, n in zip(part, self._layout.shape, strict=True)]
        blocks = [
            Block(
                tuple(piece.chunk for piece in at),
                tuple(piece.inside for piece in at),
                tuple(piece.outside for piece in at),
            )
            for at in product(*along)
        ]
        shard = self._layout.shard
        if shard is None:
            requests = [(self._key(block.chunk), None) for block in blocks]
            absent = self._decode(requests, blocks, into)
        else:
            absent = self._read_shards(shard, blocks, into)
        if absent is not None:
            self._refuse_lost_array(absent)

    def _key(self, chunk: tuple[int, ...]) -> str:
        return str(self._metadata.encode_chunk_key(chunk))

    def _decode(
        self, requests: Sequence[Request], blocks: Sequence[Block], into: np.ndarray[Any, Any]
    ) -> str | None:
        """Fetch and decode one chunk for each block; gives the key of one that is absent."""
        absent = None
        fetched = self._fetch(requests, prod(self._layout.shape))
        for block, (key, data) in zip(blocks, fetched, strict=True):
            if data is None:
                into[block.outside] = self._layout.fill
                absent = key
            else:
                self._place(key, data, block, into)
        return absent

    def _read_shards(
        self, shard: Shard, blocks: Sequence[Block], into: np.ndarray[Any, Any]
    ) -> str | None:
        """Decode blocks that lie in shards; gives the key of a shard that is absent."""
        inside: dict[str, list[Block]] = {}
        for block in blocks:
            at = tuple(chunk // n for chunk, n in zip(block.chunk, shard.grid, strict=True))
            inside.setdefault(self._key(at), []).append(block)
        # One request for all of a shard, where each costs a round trip and most of it is needed.
        whole = {
            key
            for key, needed in inside.items()
            if isinstance(self._source, StoreBytes) and 2 * len(needed) > prod(shard.grid)
        }
        part = (-shard.index_bytes, 0) if shard.at_end else (0, shard.index_bytes)
        requests: list[Request] = [(key, None if key in whole else part) for key in inside]
        absent = None
        chunks: list[tuple[Request, Block]] = []
        for key, data in self._fetch(requests, prod(self._layout.shape) * prod(shard.grid)):
            if data is None:
                absent = key
                for block in inside[key]:
                    into[block.outside] = self._layout.fill
                continue
            ends = len(data) - shard.index_bytes if key in whole and shard.at_end else 0
            index = self._index(key, shard, data[ends : ends + shard.index_bytes])
            for block in inside[key]:
                at = tuple(chunk % n for chunk, n in zip(block.chunk, shard.grid, strict=True))
                first, size = (int(value) for value in index[at])
                if first < 0:
                    into[block.outside] = self._layout.fill
                elif key in whole:
                    self._place(key, data[first : first + size], block, into)
                else:
                    chunks.append(((key, (first, first + size)), block))
        self._decode([request for request, _ in chunks], [block for _, block in chunks], into)
        return absent

    def _index(self, key: str, shard: Shard, data: Bytes) -> NDArray[np.int64]:
        try:
            return shard.index(data)
        except ValueError as error:
            error.add_note(f"in shard {key}")
            raise

    def _fetch(
        self, requests: Sequence[Request], values: int
    ) -> Iterator[tuple[str, Bytes | None]]:
        """The bytes behind each request, of that many values at most when they are decoded."""
        limit = int(zarr.config.get("async.concurrency"))
        fitting = AHEAD_BYTES // (values * self._layout.dtype.itemsize)
        found = self._source.fetch(requests, max(1, min(limit, fitting)))
        for key, _ in requests:
            began, thread = time.monotonic(), threading.get_ident()
            awaited[thread] = key
            try:
                data = next(found)
            except Exception as error:
                error.add_note(f"in chunk {key}")
                raise
            finally:
                awaited.pop(thread, None)
            fetching.seconds += time.monotonic() - began
            yield key, data

    def _place(self, key: str, data: Bytes, block: Block, into: np.ndarray[Any, Any]) -> None:
        """Decompress one chunk and put the block's part of it where it belongs."""
        out = into[block.outside]
        shape, dtype = self._layout.shape, self._layout.dtype
        try:
            if out.shape == shape and out.flags.c_contiguous:
                self._layout.decompress(data, out.reshape(-1).view(np.uint8))
                return
            chunk = scratch("chunk", prod(shape) * dtype.itemsize)
            self._layout.decompress(data, chunk)
        except Exception as error:
            error.add_note(f"in chunk {key}")
            raise
        out[...] = chunk.view(dtype).reshape(shape)[block.inside]

    def _refuse_lost_array(self, absent: str) -> None:
        """Raise where the whole array is gone, which would else read as its fill value."""
        name = "zarr.json" if self._metadata.zarr_format == 3 else ".zarray"
        if not self._source.exists(name):
            raise FileNotFoundError(
                f"the chunk {absent} is missing, and so is the array's {name}: "
                "check that the store is still where it was when it was opened"
            )
