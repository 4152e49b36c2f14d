"""superbatch inspect."""

from __future__ import annotations

import json

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from superbatch.cli import main
from superbatch.inspection import inspect


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "a.zarr"
    array = zarr.create_array(
        path, shape=(120, 40, 50), chunks=(12, 40, 50), dtype="f8", dimension_names=("t", "y", "x")
    )
    array[:] = np.arange(array.size).reshape(array.shape) % 97
    return path


def test_everything_is_told_as_json(store, capsys, tmp_path) -> None:
    picture = tmp_path / "windows.png"
    arguments = ["--window", "t=3,y=8,x=8", "--batch-size", "8", "--samples", "256", "--json"]
    assert main(["inspect", str(store), *arguments, "--plot", str(picture)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["windows"] == 118 * 33 * 43
    assert told["facts"]["sample_bytes"] == 3 * 8 * 8 * 8
    chunk = 12 * 40 * 50 * 8
    assert told["facts"]["chunk_bytes"] == chunk
    # A window of 3 out of chunks of 12 touches one chunk, or two for 2 starts in 12.
    assert 1 <= told["facts"]["random_access_bytes"] / chunk < 1.5
    assert told["expected"]["fresh_samples_per_second"] > 0
    assert told["expected"]["memory_bytes"] > told["expected"]["slots_bytes"] == 2 * 256 * 1536
    assert 0 < told["quality"]["score"] <= 1.1
    assert any("float64" in warning for warning in told["warnings"])
    assert picture.stat().st_size > 5000


def test_dask_coordinates_are_named(store) -> None:
    """A 2-d latitude that came along with chunks={} is computed whenever something is selected."""
    stored = zarr.open_array(store, mode="r")
    array = xr.DataArray(da.from_zarr(stored), dims=("t", "y", "x"))
    array = array.assign_coords(lat=(("y", "x"), da.ones((40, 50), chunks=10)))
    found, _ = inspect(array, {"t": 3}, samples=64)
    assert any("'lat' is a Dask array of 16 kB" in warning for warning in found.warnings)
    found, _ = inspect(array.drop_vars("lat"), {"t": 3}, samples=64)
    assert not any("'lat'" in warning for warning in found.warnings)


def test_what_a_batch_is_worth_is_estimated_from_the_data(tmp_path, capsys) -> None:
    """Chunks of one value each: all samples of a sequence are alike, and a batch is worth its sequences."""
    path = tmp_path / "levels.zarr"
    array = zarr.create_array(path, shape=(960,), chunks=(4,), dtype="f4", dimension_names=("t",))
    array[:] = np.repeat(np.random.default_rng(0).normal(size=240), 4)
    picture = tmp_path / "shuffle.png"
    arguments = ["--window", "t=1", "--samples", "256", "--sequences", "8", "--chunks", "1"]
    arguments += ["--batch-size", "64", "--plot-shuffle", str(picture), "--json"]
    assert main(["inspect", str(path), *arguments]) == 0
    told = json.loads(capsys.readouterr().out)["quality"]
    assert told["correlation"] == pytest.approx(1, abs=1e-6)
    assert 4 < told["effective_batch"] <= 8
    assert picture.stat().st_size > 5000


def test_a_table_for_people(store, capsys) -> None:
    assert main(["inspect", str(store), "--window", "t=3", "--memory", "1GB"]) == 0
    told = capsys.readouterr().out
    for line in ("fresh_samples_per_second", "entropy of origin in a batch", "chunks_per_sequence"):
        assert line in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--window", "z=3"], "'z', which its array does not have"),
        (["--window", "t=200"], "write t=120 or less"),
        (["--window", "t=3", "--memory", "1MB"], "too little for one sequence"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(store, capsys, arguments, message) -> None:
    assert main(["inspect", str(store), *arguments]) == 1
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
