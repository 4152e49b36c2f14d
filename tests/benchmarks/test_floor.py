"""The decode floor decompresses the chunks that superbatches need, and only measures that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from numcodecs import zstd

from benchmarks.floor import DecodeFloor, encoded_chunks
from benchmarks.workloads import Workload


def test_encoded_chunks_are_the_chunks(workload: Workload, store: Path) -> None:
    box = workload.sequence_boxes()[-1]
    for a in workload.arrays:
        z = zarr.open_array(store / a.name, mode="r")
        for position in a.chunks_of(box[a.name])[-3:]:
            (data,) = encoded_chunks(store, a, [position])
            decoded = np.frombuffer(zstd.decompress(data), a.dtype).reshape(a.chunks)
            begin = [p * c for p, c in zip(position, a.chunks, strict=True)]
            direct = z[tuple(slice(b, b + c) for b, c in zip(begin, a.chunks, strict=True))]
            # The last chunk along a dimension may reach beyond the array.
            np.testing.assert_array_equal(decoded[tuple(slice(n) for n in direct.shape)], direct)


def test_the_floor_counts_what_it_decompressed(workload: Workload, store: Path) -> None:
    floor = DecodeFloor(workload, store, threads=2)
    try:
        assert floor.decoded_bytes == workload.superbatch_decoded_bytes
        once = floor.measure(0.0)
        longer = floor.measure(0.05)
    finally:
        floor.close()
    assert (once.samples, once.decoded_bytes) == (workload.samples, floor.decoded_bytes)
    assert longer.seconds >= 0.05
    assert longer.samples % workload.samples == 0
    assert longer.samples_per_second > 0
    assert longer.gigabytes_per_second > 0
    assert longer.cpu_seconds_per_gigabyte > 0
