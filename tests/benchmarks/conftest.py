"""Tiny workloads and their stores, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zarr

from benchmarks import stores, workloads
from benchmarks.workloads import Workload

TINY = {"length": 0.01, "space": 8}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(params=["w1", "w1-fine", "w2", "w3", "w4", "w5"])
def workload(request: pytest.FixtureRequest) -> Workload:
    return workloads.WORKLOADS[request.param](**TINY)


@pytest.fixture
def store(workload: Workload, cache: Path) -> Path:
    return stores.make(workload, cache, threads=2)


@pytest.fixture
def zarr_settings() -> Iterator[None]:
    """Peers choose a codec pipeline for their process; here it is put back."""
    kept = {key: zarr.config.get(key) for key in ("codec_pipeline.path", "threading.max_workers")}
    with zarr.config.set(kept):
        yield
