"""superbatch inspect."""

from __future__ import annotations

import ast
import json
import math

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
    # less than 10 MB say nothing of a speed
    assert told["expected"]["fresh_samples_per_second"] is None
    assert told["facts"]["decoding_bytes_per_second"] is None
    assert not any("on a core" in warning for warning in told["warnings"])
    assert told["expected"]["memory_bytes"] > told["expected"]["slots_bytes"] == 2 * 256 * 1536
    assert 0 < told["quality"]["score"] <= 1.1
    assert any("float64" in warning for warning in told["warnings"])
    assert picture.stat().st_size > 5000


@pytest.fixture(scope="module")
def hours(tmp_path_factory):
    """Noise of 64 MB in chunks of 1.3 MB, compressed."""
    path = tmp_path_factory.mktemp("inspect") / "hours.zarr"
    array = zarr.create_array(
        path,
        shape=(400, 200, 200),
        chunks=(8, 200, 200),
        dtype="f4",
        dimension_names=("t", "y", "x"),
    )
    array[:] = np.random.default_rng(0).integers(0, 500, array.shape)
    return zarr.open_array(path, mode="r")


def test_speed_is_predicted_from_decoding_and_cutting(hours) -> None:
    found, _ = inspect(hours, {"t": 3, "y": 40, "x": 40}, samples=512, sequences=4)
    speed, rate = (
        found.facts["decoding_bytes_per_second"],
        found.expected["fresh_samples_per_second"],
    )
    decoded = found.expected["decoded_bytes_per_sample"]
    # four sequences, each of three chunks, or of the two on both sides of a border
    assert 8 <= 512 * decoded / (8 * 200 * 200 * 4) <= 12
    assert 0 < rate < speed / decoded
    assert not any("not compressed" in w or "memory are predicted" in w for w in found.warnings)


def test_a_larger_superbatch_is_advised_where_most_of_what_is_decoded_is_unused(hours) -> None:
    found, _ = inspect(hours, {"t": 1, "y": 20, "x": 20}, samples=64, sequences=8)
    assert any("more samples out of the same chunks cost little" in w for w in found.warnings)
    found, _ = inspect(hours, {"t": 1, "y": 20, "x": 20}, samples=16384, sequences=8)
    assert not any("more samples" in w for w in found.warnings)


def test_settings_that_make_no_sense_are_told(hours, store) -> None:
    stored = zarr.open_array(store, mode="r")
    found, _ = inspect(stored, {"t": 100})
    assert any(
        "4,096 samples is drawn from 21 windows, each about 195 times: write samples=21" in w
        for w in found.warnings
    )
    # windows enough in all, but few in two sequences of a chunk
    found, _ = inspect(hours, {"t": 4}, samples=256, sequences=2, chunks_per_sequence=1)
    assert any(
        "of 256 samples in a superbatch only" in w and "more sequences" in w for w in found.warnings
    )
    found, _ = inspect(hours, {"t": 4, "y": 200, "x": 199}, samples=200_000, sequences=4)
    assert any("memory are predicted, but" in w and "give --memory" in w for w in found.warnings)


def test_chunks_longer_than_the_array_are_told(tmp_path) -> None:
    array = zarr.create_array(
        tmp_path / "runs.zarr",
        shape=(1, 30, 64, 64),
        chunks=(17, 1, 64, 64),
        dtype="f4",
        dimension_names=("variable", "time", "y", "x"),
    )
    array[:] = 1
    found, _ = inspect(array, {"time": 2, "y": 32, "x": 32}, samples=64)
    assert found.facts["chunk_bytes"] == 17 * 64 * 64 * 4
    assert any("decodes 17 times what it holds" in w and "17x1x64x64" in w for w in found.warnings)


def test_advised_chunks_are_no_crumbs(tmp_path) -> None:
    array = zarr.create_array(
        tmp_path / "w.zarr",
        shape=(800, 400, 400),
        chunks=(100, 400, 400),
        dtype="i2",
        dimension_names=("t", "y", "x"),
    )
    array[:200] = 1
    found, _ = inspect(array, {"t": 2, "y": 8, "x": 8}, samples=64, sequences=2)
    (advice,) = [w for w in found.warnings if "random access decodes" in w]
    better = ast.literal_eval(advice[advice.index("{") : advice.index("}") + 1])
    assert 1e6 <= 2 * math.prod(better.values()) <= 2e6
    assert better["t"] / 2 == pytest.approx(better["y"] / 8, rel=1)
    # the array as it would be then: what is promised comes true
    promised = float(advice.split("would make that ")[1].split(" times")[0])
    again = zarr.create_array(
        tmp_path / "b.zarr",
        shape=array.shape,
        chunks=tuple(better.values()),
        dtype="i2",
        dimension_names=("t", "y", "x"),
    )
    found, _ = inspect(again, {"t": 2, "y": 8, "x": 8}, samples=4096, sequences=32)
    ratio = found.facts["random_access_bytes"] / found.facts["sample_bytes"]
    assert ratio == pytest.approx(promised, rel=0.2)


def test_what_is_not_compressed_is_copied_from_a_cache(tmp_path) -> None:
    array = zarr.create_array(
        tmp_path / "plain.zarr",
        shape=(400, 200, 200),
        chunks=(8, 200, 200),
        dtype="f4",
        dimension_names=("t", "y", "x"),
        compressors=None,
    )
    array[:] = 1
    found, _ = inspect(array, {"t": 3}, samples=64, sequences=8)
    assert any(
        "not compressed" in w and "copies out of the system's cache" in w for w in found.warnings
    )


def test_small_chunks_are_told_and_not_their_codec(tmp_path) -> None:
    array = zarr.create_array(
        tmp_path / "small.zarr",
        shape=(4000, 50),
        chunks=(4, 50),
        dtype="f4",
        dimension_names=("t", "x"),
    )
    array[:] = np.random.default_rng(0).normal(size=array.shape)
    found, _ = inspect(array, {"t": 3}, samples=512)
    assert any("a chunk holds 800 bytes" in w for w in found.warnings)
    assert not any("on a core" in w for w in found.warnings)


def test_values_in_memory_have_no_chunks(store) -> None:
    array = xr.DataArray(zarr.open_array(store, mode="r")[:], dims=("t", "y", "x"))
    found, _ = inspect(array, {"t": 3}, samples=64)
    assert any("the values are in memory" in w for w in found.warnings)
    assert found.expected["fresh_samples_per_second"] is None


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
    for line in (
        "fresh_samples_per_second           not measured: there is too little to read",
        "entropy of origin in a batch",
        "chunks_per_sequence",
        "correlation_in_a_sequence",
    ):
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
