"""Stores: complete or absent, the same every time, and worth decompressing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from numcodecs import Zstd

from benchmarks import stores, workloads
from benchmarks.workloads import TIME, Workload, position_array


def test_a_store_holds_what_the_workload_says(workload: Workload, store: Path) -> None:
    group = zarr.open_group(store, mode="r")
    for a in workload.arrays:
        z = group[a.name]
        assert (z.shape, z.chunks, z.shards) == (a.shape, a.chunks, a.shards)
        assert (z.dtype, z.metadata.dimension_names) == (a.dtype, a.dims)
        last = slice(a.shape[0] - 1, a.shape[0])
        np.testing.assert_array_equal(z[last], stores.content(a, last))
    for dim in workload.anchor_dims:
        np.testing.assert_array_equal(group[position_array(dim)][:], np.arange(workload.sizes[dim]))
    assert (TIME in group) == (TIME in workload.sizes)


def test_it_is_made_once(cache: Path) -> None:
    workload = workloads.w1(0.01, 8)
    store = stores.make(workload, cache)
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*")}
    assert stores.make(workload, cache) == store
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*")} == before


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    workload = workloads.w1(0.01, 8)
    broken = replace(workload.reference, name="second", dtype="no such type")
    with pytest.raises((TypeError, ValueError)):
        stores.make(replace(workload, arrays=(*workload.arrays, broken)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_content_does_not_depend_on_how_it_is_cut(workload: Workload) -> None:
    for a in workload.arrays:
        whole = stores.content(a, slice(0, 3))
        np.testing.assert_array_equal(whole[2:3], stores.content(a, slice(2, 3)))
        assert not np.array_equal(whole[0], whole[1])


def test_w1_halves_under_zstd() -> None:
    data = stores.content(workloads.w1().reference, slice(0, 6))
    assert 1.7 < data.nbytes / len(Zstd(level=0).encode(data)) < 2.3


def test_the_empty_archive_is_metadata_alone(cache: Path) -> None:
    workload = workloads.length(20_000, space=8)
    store = stores.make(workload, cache)
    assert {p.name for p in store.rglob("*") if p.is_file()} == {"zarr.json"}
    assert zarr.open_array(store / "field", mode="r").shape == workload.reference.shape
