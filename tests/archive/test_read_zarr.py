"""Bare Zarr arrays, stores of several kinds, other processes, and what is refused."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import xarray as xr
import zarr
from numcodecs import Pickle

from superbatch.archive.arrays import Array, as_array, configure
from superbatch.archive.chunks import Chunks
from tests.archive.reading import SHAPE, whole, write_positions

# Stores made by hand have no consolidated metadata; chunks are cut on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "positions.zarr"
    write_positions(path)
    return path


def test_names_of_dimensions(tmp_path):
    values = np.zeros((2, 3), "i2")
    named = zarr.create_array(tmp_path / "a", data=values, dimension_names=("y", None))
    assert as_array(named, "v").dims == ("y", "dim_1")
    two = zarr.create_array(tmp_path / "b", data=values, zarr_format=2)
    assert as_array(two, "v").dims == ("dim_0", "dim_1")
    two.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    assert as_array(two, "v").dims == ("y", "x")
    assert as_array(two, "v").coords == {}


def test_shards_are_the_borders_where_they_are_small(tmp_path):
    small = zarr.create_array(
        tmp_path / "a", shape=(100, 80), dtype="i2", chunks=(5, 10), shards=(20, 40)
    )
    array = as_array(small, "v")
    assert array.chunks == (Chunks.regular(100, 20), Chunks.regular(80, 40))
    assert array.describe()["shards"] == (20, 40)
    assert array.decoded_bytes(((0, 1), (0, 1))) == 5 * 10 * 2
    large = zarr.create_array(
        tmp_path / "b",
        shape=(20_000, 20_000),
        dtype="f4",
        chunks=(100, 100),
        shards=(10_000, 10_000),
    )
    assert as_array(large, "v").chunks[0] == Chunks.regular(20_000, 100)


def test_two_million_chunks_cost_what_few_cost(tmp_path):
    """Metadata only: no chunk is stored."""
    long = zarr.create_array(
        tmp_path / "a", shape=(72_000_000, 704), dtype="i2", chunks=(36, 704), fill_value=3
    )
    array = as_array(long, "v")
    assert array.chunks[0] == Chunks.regular(72_000_000, 36)
    assert len(pickle.dumps(array)) < 5_000
    assert (array.read(((71_999_990, 72_000_000), (0, 9))) == 3).all()


def refused(error, match, data):
    with pytest.raises(error, match=match) as caught:
        as_array(data, "sat")
    assert "sat" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_things_are_refused(store, tmp_path):
    refused(TypeError, r"hand over one of its variables.*field", xr.open_zarr(store))
    refused(TypeError, "one of its arrays", zarr.open_group(store, mode="r"))
    refused(TypeError, "numpy.ndarray: hand over an xarray.DataArray", np.zeros(3))
    refused(TypeError, "builtins.str: hand over", "archive.zarr")
    refused(ValueError, "no dimensions", xr.open_zarr(store)["field"][0, 0, 0])
    refused(ValueError, "no dimensions", xr.DataArray(1.0))


def test_values_that_make_no_tensor_are_refused(store, tmp_path):
    for label in (xr.open_zarr(store)["label"], xr.open_zarr(store, chunks=None)["label"]):
        refused(TypeError, "make no tensor", label)
    refused(TypeError, "make no tensor", xr.DataArray(np.array([{}, []], object), dims="a"))
    refused(TypeError, "make no tensor", xr.DataArray(np.array(["a", "b"]), dims="a"))
    times = xr.date_range("2000-02-28", periods=6, freq="D", calendar="360_day", use_cftime=True)
    refused(TypeError, "make no tensor", xr.DataArray(times, dims="a"))
    record = np.zeros(3, [("a", "i2"), ("b", "f4")])
    refused(
        TypeError, "make no tensor", zarr.create_array(tmp_path / "r", data=record, zarr_format=2)
    )


def test_pickles_are_never_loaded(tmp_path):
    stored = zarr.create_array(
        tmp_path / "p", shape=(4,), dtype="i2", zarr_format=2, filters=[Pickle()], compressors=None
    )
    refused(TypeError, "pickles, which are never loaded", stored)
    # Zarr itself does not open one.
    with pytest.raises(ValueError, match="pickle"):
        zarr.open_array(tmp_path / "p", mode="r")


def test_stores_that_no_other_process_sees_are_refused():
    stored = zarr.create_array(zarr.storage.MemoryStore(), data=np.zeros(4))
    refused(ValueError, "lives in this process only", stored)
    stored = zarr.create_array("memory://here/a", data=np.zeros(4))
    refused(ValueError, "lives in this process only", stored)
    memory = {}
    xr.Dataset({"v": ("a", np.arange(4))}).to_zarr(memory)
    refused(ValueError, "lives in this process only", xr.open_zarr(memory, chunks=None)["v"])
    refused(
        ValueError, "lives in this process only", xr.open_zarr(memory, chunks=None)["v"][[2, 0]]
    )
    refused(ValueError, "lives in this process only", xr.open_zarr(memory)["v"] + 1)


class Unsendable(zarr.storage.LocalStore):
    def __init__(self, root):
        super().__init__(root)
        self.lock = threading.Lock()


def test_stores_that_cannot_be_sent_are_refused(tmp_path):
    stored = zarr.create_array(Unsendable(tmp_path), data=np.zeros(4))
    refused(ValueError, "Unsendable that cannot be sent to a loader process", stored)


def _read_there(arrays: list[Array]) -> list[np.ndarray]:
    configure(1)
    return [whole(array) for array in arrays]


def test_arrays_are_read_in_a_spawned_process(store, tmp_path):
    """Format 2, format 3, sharded, other stores: sent to a new process and read there."""
    obstore = pytest.importorskip("obstore")
    values = np.arange(np.prod(SHAPE), dtype="int32").reshape(SHAPE)
    folder = tmp_path / "objects"
    folder.mkdir()
    objects = zarr.storage.ObjectStore(obstore.store.LocalStore(prefix=str(folder)))
    archive = zarr.storage.ZipStore(tmp_path / "a.zip", mode="w")
    zarr.create_array(archive, data=values, chunks=(6, 5, 4))
    archive.close()
    (tmp_path / "files").mkdir()
    files = zarr.storage.FsspecStore.from_url(
        f"file://{tmp_path}/files", storage_options={"auto_mkdir": True}
    )
    stores = {
        "format 2": {"store": tmp_path / "two", "zarr_format": 2},
        "format 3": {"store": tmp_path / "three"},
        "pipeline": {"store": tmp_path / "order", "zarr_format": 2, "order": "F"},
        "shards": {"store": tmp_path / "shards", "shards": (12, 10, 8)},
        "obstore": {"store": objects, "name": "c"},
        "obstore shards": {"store": objects, "name": "s", "shards": (12, 10, 8)},
        "fsspec": {"store": files},
    }
    arrays = [
        as_array(zarr.create_array(data=values, chunks=(6, 5, 4), **options), name)
        for name, options in stores.items()
    ]
    arrays.append(as_array(zarr.open_array(zarr.storage.ZipStore(tmp_path / "a.zip")), "zip"))
    arrays.append(as_array(xr.open_zarr(store, chunks=None)["field"][::-1], "xarray"))
    arrays.append(as_array(xr.open_zarr(store, chunks=None)["field"][[3, 1, 2]], "by xarray"))
    arrays.append(as_array(xr.open_zarr(store)["field"] + 1, "dask"))
    expected = [*[values] * 8, values[::-1], values[[3, 1, 2]], values + 1]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(_read_there, arrays).result(timeout=90)
    for array, got, wanted in zip(arrays, found, expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=array.name)
    here = [whole(array) for array in arrays]
    for array, got, wanted in zip(arrays, here, expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=array.name)


@pytest.mark.parametrize("shards", [None, (12, 10, 8)])
def test_remote_stores_are_read_in_boxes(tmp_path, shards):
    obstore = pytest.importorskip("obstore")
    values = np.arange(np.prod(SHAPE), dtype="int32").reshape(SHAPE)
    objects = zarr.storage.ObjectStore(obstore.store.LocalStore(prefix=str(tmp_path)))
    stored = zarr.create_array(
        objects, shape=SHAPE, dtype="int32", chunks=(6, 5, 4), shards=shards, fill_value=5
    )
    stored[:12] = values[:12]
    stored[18:] = values[18:]
    array = as_array(stored, "v")
    assert array.describe()["pipeline"] == "direct"
    for box in (((0, 23), (0, 17), (0, 10)), ((5, 13), (4, 9), (3, 9)), ((12, 18), (0, 1), (0, 1))):
        np.testing.assert_array_equal(array.read(box), stored[tuple(slice(*ends) for ends in box)])


def test_errors_of_a_store_arrive_as_they_are(tmp_path):
    stored = zarr.create_array(tmp_path / "a", data=np.ones((4, 4), "i2"), chunks=(2, 4))
    array = as_array(stored, "sat")
    chunk = tmp_path / "a/c/1/0"
    chunk.unlink()
    chunk.symlink_to(chunk)
    with pytest.raises(OSError, match="symbolic links") as caught:
        array.read(((0, 4), (0, 4)))
    assert "in chunk c/1/0" in caught.value.__notes__
    assert any(note.startswith("while reading sat at") for note in caught.value.__notes__)


def test_configure_chooses_the_pipeline():
    before = zarr.config.get("codec_pipeline.path")
    with zarr.config.set({"codec_pipeline.path": before}):
        configure(3)
        assert "zarrs" in zarr.config.get("codec_pipeline.path")
        assert zarr.config.get("threading.max_workers") == 3
