"""The decode floor: how fast the needed chunks can be decompressed, with nothing else to do.

The compressed bytes are in memory already, the output goes into one warm buffer per thread, and
numcodecs decompresses on all cores. No loader that decodes each needed chunk once can be faster.

numcodecs makes a context of some 100 kB for each chunk. Left alone, glibc maps and unmaps it
every time, which on small chunks takes longer than decompressing; here it is told to keep it.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr
from numcodecs import zstd
from zarr.codecs import ShardingCodec

from benchmarks.workloads import Array, Workload

_ABSENT = 2**64 - 1


@dataclass(frozen=True)
class Floor:
    """One measurement: superbatches' worth of chunks, decompressed.

    Attributes
    ----------
    seconds, cpu_seconds : float
        Wall time, and CPU time of all threads.
    decoded_bytes : int
        Bytes that came out.
    samples : int
        Samples that superbatch cuts from them.
    """

    seconds: float
    cpu_seconds: float
    decoded_bytes: int
    samples: int

    @property
    def gigabytes_per_second(self) -> float:
        return self.decoded_bytes / self.seconds / 1e9

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    @property
    def cpu_seconds_per_gigabyte(self) -> float:
        return self.cpu_seconds / (self.decoded_bytes / 1e9)


def encoded_chunks(store: Path, array: Array, positions: list[tuple[int, ...]]) -> list[bytes]:
    """Compressed bytes of the chunks at these grid positions; shards are opened up.

    Positions are visited in order, and a shard's index is read once for a run of its chunks.
    """
    zarray = zarr.open_array(store / array.name, mode="r")
    encode = zarray.metadata.encode_chunk_key
    if array.shards is None:
        return [(store / array.name / encode(p)).read_bytes() for p in positions]
    codec = zarray.metadata.codecs[0]
    if not isinstance(codec, ShardingCodec) or codec.index_location.value != "end":
        raise ValueError(f"{array.name}: the floor reads shards with the index at the end only")
    per = tuple(s // c for s, c in zip(array.shards, array.chunks, strict=True))
    index_bytes = int(np.prod(per)) * 16
    shards: dict[tuple[int, ...], tuple[bytes, np.ndarray]] = {}
    out = []
    for p in positions:
        shard = tuple(i // n for i, n in zip(p, per, strict=True))
        if shard not in shards:
            data = (store / array.name / encode(shard)).read_bytes()
            # The index ends in a crc32c of four bytes.
            index = np.frombuffer(data[-index_bytes - 4 : -4], "<u8").reshape(*per, 2)
            shards[shard] = data, index
        data, index = shards[shard]
        start, size = (int(v) for v in index[tuple(i % n for i, n in zip(p, per, strict=True))])
        if start == _ABSENT:
            raise ValueError(f"{array.name}: chunk {p} is not there, the floor needs full stores")
        out.append(data[start : start + size])
    return out


def keep_freed_memory() -> None:
    """Have glibc serve blocks of up to 32 MiB, the most it takes, from memory that was freed."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        m_trim_threshold, m_mmap_threshold = -1, -3
        libc.mallopt(m_mmap_threshold, 32 << 20)
        libc.mallopt(m_trim_threshold, 1 << 30)


class DecodeFloor:
    """The chunks of one superbatch in memory, ready to be decompressed again and again."""

    def __init__(self, workload: Workload, store: Path, threads: int) -> None:
        self.samples = workload.samples
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads)
        self.work: list[tuple[bytes, int]] = []
        self.cached: dict[tuple[str, tuple[int, ...]], bytes] = {}
        for box in workload.sequence_boxes():
            for array in workload.arrays:
                positions = array.chunks_of(box[array.name])
                missing = [p for p in positions if (array.name, p) not in self.cached]
                found = encoded_chunks(store, array, missing)
                self.cached.update(
                    {(array.name, p): c for p, c in zip(missing, found, strict=True)}
                )
                self.work += [(self.cached[array.name, p], array.chunk_bytes) for p in positions]
        self.decoded_bytes = sum(size for _, size in self.work)
        largest = max(size for _, size in self.work)
        self.buffers = [np.zeros(largest, np.uint8) for _ in range(threads)]
        self.measure(0.0)  # a first pass warms the buffers and the codec

    def measure(self, seconds: float) -> Floor:
        """Decompress whole superbatches for at least this long."""
        passes = 0
        cpu, start = time.process_time(), time.perf_counter()
        while not passes or time.perf_counter() - start < seconds:
            # Threads take the next chunk when they are free: a core that others disturb gets fewer.
            queue = iter(self.work)
            list(self.pool.map(self._drain, [queue] * self.threads, self.buffers))
            passes += 1
        return Floor(
            seconds=time.perf_counter() - start,
            cpu_seconds=time.process_time() - cpu,
            decoded_bytes=passes * self.decoded_bytes,
            samples=passes * self.samples,
        )

    @staticmethod
    def _drain(queue, buffer: np.ndarray) -> None:  # type: ignore[no-untyped-def]
        for data, size in queue:
            zstd.decompress(data, buffer[:size])

    def close(self) -> None:
        self.pool.shutdown()
