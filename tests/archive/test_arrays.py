"""DataArrays that users hand over, read through `superbatch` and compared with xarray's reading."""

from __future__ import annotations

import operator
import pickle

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from superbatch.archive.arrays import as_array
from superbatch.archive.chunks import Chunks
from tests.archive.reading import DIMS, SHAPE, same, whole, write_positions

# Stores made by hand have no consolidated metadata; chunks are cut on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]

CHUNKINGS = {"none": None, "stored": {}, "auto": "auto", "other": {"time": 7, "y": 5, "x": 10}}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "positions.zarr"
    write_positions(path)
    return path


@pytest.fixture(params=CHUNKINGS)
def field(store, request):
    return xr.open_zarr(store, chunks=CHUNKINGS[request.param])["field"]


VIEWS = {
    "as it is": lambda a: a,
    "sliced": lambda a: a.isel(time=slice(3, 20), x=slice(2, None)),
    "flipped": lambda a: a.isel(y=slice(None, None, -1)),
    "strided": lambda a: a.isel(time=slice(1, None, 3), x=slice(None, None, -2)),
    "dropped": lambda a: a.isel(y=4),
    "dropped from the end": lambda a: a.isel(time=-2, x=-1),
    "by label": lambda a: a.sel(time=slice("2020-01-01T03", "2020-01-01T15"), y=slice(58, 52)),
    "positions": lambda a: a.isel(time=[2, 3, 4, 5]),
    "transposed": lambda a: a.transpose("x", "time", "y"),
    "transposed and sliced": lambda a: a.transpose("x", "time", "y").isel(x=slice(None, None, -1)),
    "sliced and transposed": lambda a: a.isel(time=slice(20, 2, -4)).transpose("y", "x", "time"),
    "turned twice": lambda a: a.T.isel(y=3).T.isel(time=slice(4, 19)),
    "sliced again and again": lambda a: a[2:][::-1][:, 1:][3:15:2].isel(x=slice(1, 9))[:, ::-1],
    "one left": lambda a: a.isel(time=slice(5, 6), x=slice(3, 4)),
    "none left": lambda a: a.isel(time=slice(5, 5)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_read_from_zarr(field, view):
    data = VIEWS[view](field)
    lazy = data.variable._data
    path: str | None = "zarr"
    if view == "positions" and isinstance(lazy, da.Array):
        path = "dask"  # Dask shuffles for a list, even for an even one
    if view in ("none left",):
        path = None
    same(data, path)


def test_rechunked_by_dask(store):
    data = xr.open_zarr(store, chunks={})["field"]
    same(data.chunk(time=7, y=17, x=3))
    same(data.chunk(time=(10, 3, 10)).isel(time=slice(None, None, -1), y=2).T)


def test_borders_are_those_of_the_store(store):
    for chunks in CHUNKINGS.values():
        array = as_array(xr.open_zarr(store, chunks=chunks)["field"], "field")
        assert array.chunks == tuple(map(Chunks.regular, SHAPE, (6, 5, 4)))
    flipped = (
        xr.open_zarr(store)["field"].isel(time=slice(3, None)).isel(time=slice(None, None, -1))
    )
    # Stored borders at 6, 12 and 18 of 3..22, seen from the end.
    assert as_array(flipped, "field").chunks[0] == Chunks.irregular([5, 6, 6, 3])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_chain_of_slices_and_turns(store, data):
    seen = xr.open_zarr(store, chunks=CHUNKINGS[data.draw(st.sampled_from(list(CHUNKINGS)))])[
        "field"
    ]
    for _ in range(data.draw(st.integers(0, 4))):
        dim = data.draw(st.sampled_from(seen.dims))
        ends = st.none() | st.integers(-12, 12)
        step = data.draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
        cut = seen.isel({dim: slice(data.draw(ends), data.draw(ends), step)})
        if cut.size:
            seen = cut
        if data.draw(st.booleans()):
            seen = seen.transpose(*data.draw(st.permutations(seen.dims)))
        if seen.ndim > 1 and data.draw(st.booleans()):
            seen = seen.isel({seen.dims[0]: data.draw(st.integers(0, seen.shape[0] - 1))})
    same(seen, "zarr")


def test_what_is_not_understood_is_read_through_xarray(store):
    field = xr.open_zarr(store, chunks=None)["field"]
    same(field.isel(time=[4, 1, 9]), "xarray")
    points = xr.DataArray([0, 3, 5], dims="point")
    same(field.isel(time=points, y=points), "xarray")
    chunked = xr.open_zarr(store, chunks={})["field"].drop_vars(["label", "place"])
    same(chunked + 1, "dask")
    same(chunked.astype("float32") * 2, "dask")
    same(xr.concat([chunked[:5], chunked[9:]], "time"), "dask")
    same(chunked.isel(time=[4, 1, 9]), "dask")
    same(chunked.expand_dims(run=2), "dask")
    same(chunked.roll(time=3), "dask")
    same(chunked.coarsen(time=2, boundary="trim").mean(), "dask")
    same(chunked.isel(time=points, y=points), "dask")
    turned = chunked.data.map_blocks(np.flip, axis=2, dtype=chunked.dtype)
    same(chunked.copy(data=turned), "dask")


def test_a_dask_graph_that_only_looks_like_slicing(store):
    """Blocks of one array in another order, or twice, are not mistaken for the array."""
    z = zarr.open_array(store / "field", mode="r")
    x = da.from_zarr(z)
    for blocks in ([x[6:12], x[:6]], [x[:6], x[:6]], [x[:6], x[12:18]], [x[:6], x[6:12] + 0]):
        values = da.concatenate(blocks)
        same(xr.DataArray(values, dims=DIMS), "dask")
    turned = da.block([[x[:6, :5], x[:6, 5:10]], [x[6:12, 5:10], x[6:12, :5]]])
    same(xr.DataArray(turned, dims=DIMS), "dask")


def made_by_hand(sources, blocks, chunks):
    """A Dask array whose blocks are parts of blocks of other Dask arrays, as slicing leaves them."""
    layer = {}
    for at, (source, block, part) in blocks.items():
        key = ("made", *at)
        layer[key] = Task(key, operator.getitem, TaskRef((source.name, *block)), part)
    graph = HighLevelGraph.from_collections("made", layer, dependencies=sources)
    return xr.DataArray(da.Array(graph, "made", chunks, dtype=sources[0].dtype), dims=("y", "x"))


ALL = (slice(None), slice(None))
HALF = (slice(0, 2), slice(None))
REVERSED = (slice(None, None, -1), slice(None))
MADE = {
    # How it is called, the path it must take, and what each of the two by two blocks is.
    "as it was": ("zarr", {(0, 0): ALL, (0, 1): ALL, (1, 0): ALL, (1, 1): ALL}),
    "one turned": ("dask", {(0, 0): ALL, (0, 1): ALL, (1, 0): ALL, (1, 1): REVERSED}),
    "two turned": ("dask", {(0, 0): ALL, (0, 1): ALL, (1, 0): REVERSED, (1, 1): REVERSED}),
}


@pytest.mark.parametrize("how", MADE)
def test_parts_of_blocks(store, how):
    path, parts = MADE[how]
    x = da.from_zarr(zarr.open_array(store / "field", mode="r"))[:, :, 0]
    blocks = {at: (x, at, part) for at, part in parts.items()}
    same(made_by_hand([x], blocks, ((6, 6), (5, 5))), path)


def test_blocks_in_other_places(store):
    x = da.from_zarr(zarr.open_array(store / "field", mode="r"))[:, :, 0]
    corners = [(0, 0), (0, 1), (1, 0), (1, 1)]
    chunks = ((6, 6), (5, 5))
    for order, path in (
        ([(0, 0), (0, 1), (1, 0), (1, 1)], "zarr"),
        ([(1, 0), (1, 1), (2, 0), (2, 1)], "zarr"),
        ([(1, 0), (1, 1), (0, 0), (0, 1)], "dask"),
        ([(0, 0), (0, 1), (2, 0), (2, 1)], "dask"),
        ([(0, 0), (0, 1), (1, 1), (1, 0)], "dask"),
        ([(0, 0), (0, 1), (1, 0), (0, 0)], "dask"),
        ([(0, 0), (0, 0), (1, 0), (1, 0)], "dask"),
    ):
        blocks = {at: (x, block, ALL) for at, block in zip(corners, order, strict=True)}
        same(made_by_hand([x], blocks, chunks), path)
    halves = {at: (x, at, HALF) for at in corners}
    same(made_by_hand([x], halves, ((2, 2), (5, 5))), "dask")


def test_blocks_of_two_arrays(store):
    """Two stored arrays of one shape, whose blocks would fit each other."""
    one = zarr.open_array(store / "field", mode="r")
    other = zarr.create_array(store.parent / "other", data=one[:] + 10_000, chunks=(6, 5, 4))
    x, y = da.from_zarr(one)[:, :, 0], da.from_zarr(other)[:, :, 0]
    for odd in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        blocks = {at: (y if at == odd else x, at, ALL) for at in np.ndindex(2, 2)}
        same(made_by_hand([x, y], blocks, ((6, 6), (5, 5))), "dask")


def test_only_some_blocks_of_a_long_graph_are_looked_at(store, monkeypatch):
    """Beyond a number of blocks, those along each axis and a sample of the others decide."""
    monkeypatch.setattr("superbatch.archive.read_dask.ALL_BLOCKS", 3)
    monkeypatch.setattr("superbatch.archive.read_dask.SOME_BLOCKS", 200)
    x = da.from_zarr(zarr.open_array(store / "field", mode="r"))[:, :, 0]
    blocks = {at: (x, at, ALL) for at in np.ndindex(2, 2)}
    same(made_by_hand([x], blocks, ((6, 6), (5, 5))), "zarr")
    blocks[1, 1] = (x, (1, 1), REVERSED)
    same(made_by_hand([x], blocks, ((6, 6), (5, 5))), "dask")


@pytest.mark.parametrize("make", ["from_array", "from_zarr", "inline"])
def test_dask_arrays_made_by_hand(store, make):
    z = zarr.open_array(store / "field", mode="r")
    values = {
        "from_array": lambda: da.from_array(z, chunks=(24, 17, 3)),
        "from_zarr": lambda: da.from_zarr(z),
        "inline": lambda: da.from_array(z, chunks=(6, 5, 4), inline_array=True),
    }[make]()
    same(xr.DataArray(values, dims=DIMS))
    same(xr.DataArray(values[::-1, 3:, 2], dims=DIMS[:2]))


def test_irregular_dask_chunks():
    values = np.arange(55 * 4).reshape(55, 4)
    data = xr.DataArray(da.from_array(values, chunks=((24, 24, 7), 4)), dims=("time", "x"))
    array = same(data, "dask")
    assert array.chunks[0] == Chunks.irregular([24, 24, 7])
    assert array.decoded_bytes(((23, 25), (0, 1))) == 48 * 4 * 8


def test_values_in_memory(store):
    values = np.arange(24.0).reshape(4, 6)
    data = xr.DataArray(values, dims=("a", "b"))
    same(data, "numpy")
    same(data.T, "numpy")
    same(data[::-1, ::2], "numpy")
    same(xr.DataArray(values.astype(">f8"), dims=("a", "b")), "numpy", np.dtype("f8"))
    loaded = xr.open_zarr(store, chunks=None)["field"].load()
    same(loaded, "numpy")
    looked_at = xr.open_zarr(store, chunks=None)["field"]
    looked_at.values  # noqa: B018
    same(looked_at, "numpy")
    same(looked_at[1:, ::2], "numpy")


def test_much_that_was_loaded_is_told(store, monkeypatch, recwarn):
    monkeypatch.setattr("superbatch.archive.arrays._LARGE", 1000)
    field = xr.open_zarr(store, chunks=None)["field"]
    as_array(field, "field")
    as_array(xr.DataArray(np.zeros(2000), dims="x"), "made")
    assert not [w for w in recwarn if "loaded" in str(w.message)]
    with pytest.warns(UserWarning, match=r"field was loaded into memory, 0\.0 GB, as \.load"):
        as_array(field.load(), "field")


def test_values_changed_in_memory_are_the_ones_read(store):
    data = xr.open_zarr(store, chunks=None)["field"]
    data[3, 4, 5] = -99
    assert whole(as_array(data, "field"))[3, 4, 5] == -99
    same(data, None)


def test_coordinates_are_loaded(store):
    for chunks in CHUNKINGS.values():
        data = xr.open_zarr(store, chunks=chunks)["field"]
        coords = as_array(data.isel(time=slice(None, None, -2)), "field").coords
        assert sorted(coords) == ["time", "y"]
        assert all(type(values) is np.ndarray for values in coords.values())
        np.testing.assert_array_equal(coords["time"], data.time.values[::-2])
        np.testing.assert_array_equal(coords["y"], data.y.values)


def test_an_array_is_cheap_to_send(store):
    array = as_array(xr.open_zarr(store, chunks=None)["field"], "field")
    assert len(pickle.dumps(array)) < 10_000


def test_identity(store):
    field = xr.open_zarr(store, chunks=None)["field"]
    again = xr.open_zarr(store, chunks={})["field"]
    stored = zarr.open_array(store / "field", mode="r")

    def identity(data):
        return as_array(data, "any name").identity

    assert identity(field) == identity(again)
    assert hash(identity(field)) == hash(identity(again))
    assert identity(field) == pickle.loads(pickle.dumps(as_array(field, "a"))).identity
    assert identity(field[2:]) == identity(again[2:])
    assert identity(field[2:]) != identity(field)
    assert identity(field.T) != identity(field)
    assert identity(xr.open_zarr(store)["one"]) != identity(field)
    assert identity(stored) == identity(stored)
    values = np.zeros((3, 4))
    assert identity(xr.DataArray(values)) == identity(xr.DataArray(values))
    assert identity(xr.DataArray(values)) != identity(xr.DataArray(values.copy()))


def test_out_must_fit(store):
    array = as_array(xr.open_zarr(store)["field"], "field")
    box = ((0, 2), (0, 3), (0, 4))
    out = np.zeros((2, 3, 4), "int32")
    assert array.read(box, out) is out
    for wrong in (out.astype("int64"), out[:1], np.zeros((4, 3, 2), "int32").T):
        with pytest.raises(ValueError, match=r"of shape \(2, 3, 4\) and type int32"):
            array.read(box, wrong)
    for outside in (((0, 24), (0, 3), (0, 4)), ((-1, 2), (0, 3), (0, 4)), ((0, 2), (0, 3))):
        with pytest.raises(ValueError, match="not within the shape"):
            array.read(outside)


def test_decoded_bytes_are_those_of_whole_chunks(store):
    array = as_array(xr.open_zarr(store)["field"], "field")
    chunk = 6 * 5 * 4 * 4
    assert array.decoded_bytes(((0, 6), (0, 5), (0, 4))) == chunk
    assert array.decoded_bytes(((5, 7), (4, 6), (3, 5))) == 8 * chunk
    assert array.decoded_bytes(((22, 23), (16, 17), (9, 10))) == chunk
    assert array.decoded_bytes(((3, 3), (0, 5), (0, 4))) == 0
    strided = as_array(xr.open_zarr(store)["field"][::-12, 0], "field")
    assert strided.decoded_bytes(((0, 2), (0, 10))) == 2 * 3 * chunk
