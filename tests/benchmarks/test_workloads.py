"""The geometry of the workloads."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import workloads
from benchmarks.workloads import Workload


def test_w1_is_what_it_is_published_as() -> None:
    w1 = workloads.w1()
    field = w1.reference
    assert (field.shape, field.chunks, field.dtype) == ((3600, 704, 548), (36, 704, 548), "int16")
    assert field.window_shape == (2, 128, 128)
    assert (w1.batch_size, w1.samples, w1.sequences) == (8, 4096, 32)
    assert w1.superbatch_decoded_bytes == 32 * 3 * 36 * 704 * 548 * 2
    assert workloads.w1_fine().superbatch_decoded_bytes == w1.superbatch_decoded_bytes
    assert workloads.w1_fine().reference.chunks == (1, 704, 548)


def test_the_others_have_their_sizes() -> None:
    w2, w3, w4, w5 = (workloads.WORKLOADS[n]() for n in ("w2", "w3", "w4", "w5"))
    assert [a.window_shape for a in w2.arrays][:2] == [(19, 12, 32, 32), (1, 20, 32, 32)]
    assert (len(w2.arrays), w2.arrays[-1].window_shape, w2.batch_size) == (12, (19, 940), 32)
    assert w3.sample_bytes == pytest.approx(0.96e6, rel=0.01)
    assert w4.reference.window_shape == (64, 64, 8)
    assert (w4.reference.shape, w4.reference.chunks) == ((1000,) * 3, (64,) * 3)
    shard, chunk = w5.reference.shards, w5.reference.chunks
    assert shard is not None
    assert np.prod(shard) == 64 * np.prod(chunk)


def test_the_long_archive_has_two_million_chunks() -> None:
    long = workloads.length(20_000)
    assert long.reference.shape[0] // long.reference.chunks[0] == 2_000_000
    assert long.samples == workloads.w1().samples


def test_every_anchor_fits_and_the_ends_are_reached(workload: Workload) -> None:
    anchors = workload.anchors(3000)
    for k, (dim, allowed) in enumerate(workload.anchor_range().items()):
        assert set(anchors[:, k]) <= set(allowed), dim
    first = np.array([r.start for r in workload.anchor_range().values()])
    last = np.array([r.stop - 1 for r in workload.anchor_range().values()])
    touched = {a.name: [set(), set()] for a in workload.arrays}
    for side, anchor in enumerate((first, last)):
        for a in workload.arrays:
            index = workload.indices(anchor)[a.name]
            assert tuple(s.stop - s.start for s in index) == a.window_shape
            assert all(s.start >= 0 for s in index)
            assert all(s.stop <= n for s, n in zip(index, a.shape, strict=True))
            touched[a.name][side] = {
                d
                for d, s, n in zip(a.dims, index, a.shape, strict=True)
                if (s.start == 0 if side == 0 else s.stop == n)
            }
    # Along every dimension, some array is cut at its very first and its very last position.
    for side in (0, 1):
        assert set(workload.anchor_dims) <= set.union(*(t[side] for t in touched.values()))


def test_sequences_hold_windows_and_count_their_chunks(workload: Workload) -> None:
    boxes = workload.sequence_boxes(seed=3)
    assert len(boxes) == workload.sequences
    for box in boxes:
        for anchor in workload.anchors(20, box=box):
            for a in workload.arrays:
                window, whole = workload.indices(anchor)[a.name], box[a.name]
                for w, b in zip(window, whole, strict=True):
                    assert b.start <= w.start
                    assert w.stop <= b.stop
    a, index = workload.reference, boxes[0][workload.reference.name]
    assert a.chunk_count(index) == len(set(a.chunks_of(index)))
