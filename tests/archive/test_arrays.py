"""What users hand over, read through `superbatch` and compared with xarray's own reading."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import Pickle

from superbatch.archive.arrays import Array, as_array, configure
from superbatch.archive.chunks import Chunks

SHAPE = (23, 17, 10)
DIMS = ("time", "y", "x")
# Stores made by hand have no consolidated metadata; chunks are cut on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]

CHUNKINGS = {"none": None, "stored": {}, "auto": "auto", "other": {"time": 7, "y": 5, "x": 10}}


def whole(array: Array) -> np.ndarray:
    """All values of an array, decoded."""
    return window(array, tuple((0, n) for n in array.shape))


def window(array: Array, box) -> np.ndarray:
    """A window, read with a margin and cropped before it is decoded, as a loader does."""
    wide = tuple((max(0, a - 1), min(n, b + 1)) for (a, b), n in zip(box, array.shape, strict=True))
    raw = array.read(wide)
    crop = raw[tuple(slice(a - w, b - w) for (a, b), (w, _) in zip(box, wide, strict=True))]
    out = np.empty(crop.shape, array.dtype)
    array.decode(crop, out)
    return out


def same(data: xr.DataArray, path: str | None = "zarr", dtype=None) -> Array:
    """Check an array against what the DataArray shows, and which way it took."""
    array = pickle.loads(pickle.dumps(as_array(data, "field")))
    assert path is None or array.describe()["path"] == path, array.describe()
    assert (array.dims, array.shape) == (data.dims, data.shape)
    assert array.dtype == (data.dtype if dtype is None else dtype)
    values = data.values
    np.testing.assert_array_equal(whole(array), values)
    middle = tuple((n // 3, n - n // 4) for n in data.shape)
    np.testing.assert_array_equal(window(array, middle), values[tuple(slice(*b) for b in middle)])
    for dim, borders, n in zip(array.dims, array.chunks, array.shape, strict=True):
        assert borders.length == n, dim
    return array


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A Zarr store whose values name their position, with coordinates of several kinds."""
    path = tmp_path_factory.mktemp("arrays") / "positions.zarr"
    field = np.arange(np.prod(SHAPE), dtype="int32").reshape(SHAPE)
    xr.Dataset(
        {"field": (DIMS, field), "one": (("y",), field[0, :, 0])},
        {
            "time": np.datetime64("2020-01-01", "ns") + np.arange(23) * np.timedelta64(1, "h"),
            "y": np.linspace(60, 50, 17),
            "place": (("y", "x"), field[0]),
            "label": ("time", [f"step {k}" for k in range(23)]),
        },
    ).to_zarr(path, encoding={"field": {"chunks": (6, 5, 4)}}, zarr_format=3)
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


# --- CF decoding -------------------------------------------------------------------------------


def written(tmp_path, values, encoding, zarr_format=3, attrs=None, **options):
    """A variable written by xarray and opened again."""
    data = xr.DataArray(values, dims=DIMS[: values.ndim], name="v", attrs=attrs)
    path = tmp_path / "cf.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_dataset().to_zarr(path, encoding={"v": encoding}, zarr_format=zarr_format, mode="w")
        return xr.open_zarr(path, **{"chunks": None, **options})["v"]


@pytest.mark.parametrize("chunks", [None, {}])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("raw", ["int16", "uint8", "int32"])
@pytest.mark.parametrize("kind", [float, np.float32])
def test_packed_values_become_float32(tmp_path, chunks, zarr_format, raw, kind):
    values = np.linspace(-1, 1, 300).reshape(10, 30)
    values[2, 3] = values[9, 29] = np.nan
    encoding = {
        "dtype": raw,
        "scale_factor": kind(0.01),
        "add_offset": kind(-1.0),
        "_FillValue": 255,
        "chunks": (4, 9),
    }
    data = written(tmp_path, values, encoding, zarr_format, chunks=chunks)
    array = as_array(data, "v")
    assert array.describe()["path"] == "zarr"
    assert (array.raw_dtype, array.dtype) == (np.dtype(raw), np.dtype("float32"))
    found, shown = whole(array), data.values
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    np.testing.assert_allclose(found, shown, rtol=0, atol=3e-7)


def test_large_offsets_do_not_cancel_digits(tmp_path):
    raw = np.arange(10**9, 10**9 + 1000, dtype="int32")
    path = tmp_path / "packed.zarr"
    stored = zarr.create_array(path / "v", data=raw, chunks=(300,), dimension_names=("time",))
    stored.attrs.update(scale_factor=0.001, add_offset=-1e6)
    zarr.open_group(path, mode="a")
    array = as_array(xr.open_zarr(path, chunks=None)["v"], "v")
    assert array.dtype == np.float32
    np.testing.assert_allclose(whole(array), np.arange(1000) / 1000, atol=1e-6)
    scalar = np.empty((), "float32")
    array.decode(raw[5], scalar)
    assert float(scalar) == pytest.approx(0.005)


@pytest.mark.parametrize("only", ["scale_factor", "add_offset"])
def test_a_scale_or_an_offset_alone(tmp_path, only):
    values = np.arange(24.0).reshape(4, 6) * 2
    data = written(tmp_path, values, {"dtype": "int16", only: 2.0})
    array = as_array(data, "v")
    assert array.dtype == np.float32
    np.testing.assert_array_equal(whole(array), values)


@pytest.mark.parametrize(
    ("raw", "result"), [("int16", "float32"), ("int32", "float64"), ("float32", "float32")]
)
def test_fill_values_without_packing(tmp_path, raw, result):
    values = np.arange(24.0).reshape(4, 6)
    values[1, 2] = np.nan
    data = written(tmp_path, values, {"dtype": raw, "_FillValue": -9})
    same(data, "zarr", np.dtype(result))


def test_missing_value_and_fill_value(tmp_path):
    raw = np.arange(24, dtype="int16").reshape(4, 6)
    group = zarr.open_group(tmp_path / "m.zarr", mode="w")
    stored = group.create_array("v", data=raw, dimension_names=("a", "b"))
    stored.attrs["missing_value"] = 7
    stored.attrs["_FillValue"] = 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = xr.open_zarr(tmp_path / "m.zarr", chunks=None)["v"]
    same(data)
    assert np.argwhere(np.isnan(whole(as_array(data, "v")))).tolist() == [[0, 3], [1, 1]]


@pytest.mark.parametrize("unsigned", ["true", "false"])
def test_unsigned_attribute(tmp_path, unsigned):
    raw = np.array([[1, 255, 128], [127, 5, 200]], "uint8")
    raw = raw.view("int8") if unsigned == "true" else raw
    group = zarr.open_group(tmp_path / "u.zarr", mode="w")
    stored = group.create_array("v", data=raw, dimension_names=("a", "b"))
    stored.attrs.update(_Unsigned=unsigned, scale_factor=0.5)
    same(xr.open_zarr(tmp_path / "u.zarr", chunks=None)["v"], "zarr", np.dtype("float32"))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float64", "complex64"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_plain_types_stay(tmp_path, dtype, zarr_format):
    values = np.arange(24).reshape(4, 6).astype(dtype)
    same(written(tmp_path, values, {"chunks": (3, 4)}, zarr_format), dtype=np.dtype(dtype))


def test_big_endian_values(tmp_path):
    group = zarr.open_group(tmp_path / "b.zarr", mode="w", zarr_format=2)
    values = np.arange(24, dtype=">f4").reshape(4, 6)
    stored = group.create_array("v", data=values)
    stored.attrs["_ARRAY_DIMENSIONS"] = ["a", "b"]
    data = xr.open_zarr(tmp_path / "b.zarr", chunks=None)["v"]
    array = same(data, None, np.dtype("f4"))
    assert array.raw_dtype.isnative


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize("packed", [False, True])
def test_zeros_stay_zeros(tmp_path, zarr_format, dtype, packed):
    """Zarr's default fill value of 0 hides no zeros that were measured."""
    group = zarr.open_group(tmp_path / "z.zarr", mode="w", zarr_format=zarr_format)
    values = np.arange(24, dtype=dtype).reshape(4, 6) % 3
    names = {"dimension_names": ("a", "b")} if zarr_format == 3 else {}
    stored = group.create_array("v", data=values, fill_value=0, **names)
    stored.attrs["_ARRAY_DIMENSIONS"] = ["a", "b"]
    if packed:
        stored.attrs["scale_factor"] = 2.0
    data = xr.open_zarr(tmp_path / "z.zarr", chunks=None)["v"]
    if zarr_format == 2:
        assert np.isnan(data.compute()).any(), "xarray itself hides zeros of format 2"
    for shown in (data, data.chunk(), data[::-1].T):
        array = as_array(shown, "v")
        assert array.dtype == ("float32" if packed else dtype)
    np.testing.assert_array_equal(whole(as_array(data, "v")), values * (2 if packed else 1))
    np.testing.assert_array_equal(whole(as_array(stored, "v")), values)


def test_zeros_that_an_attribute_calls_missing_are_missing(tmp_path):
    group = zarr.open_group(tmp_path / "z.zarr", mode="w", zarr_format=2)
    stored = group.create_array("v", data=np.arange(6, dtype="int16"), fill_value=0)
    stored.attrs.update(_ARRAY_DIMENSIONS=["a"], missing_value=0)
    data = xr.open_zarr(tmp_path / "z.zarr", chunks=None)["v"]
    assert np.isnan(whole(as_array(data, "v"))).tolist() == [True] + [False] * 5
    same(data)


def test_other_fill_values_of_format_2_are_missing_as_xarray_shows_them(tmp_path):
    values = np.arange(24.0).reshape(4, 6)
    values[1, 1] = np.nan
    data = written(tmp_path, values, {"dtype": "int16", "_FillValue": -1}, zarr_format=2)
    assert np.isnan(whole(same(data))[1, 1])


def test_zeros_hidden_where_the_array_cannot_be_looked_through(tmp_path):
    group = zarr.open_group(tmp_path / "z.zarr", mode="w", zarr_format=2)
    stored = group.create_array("v", data=np.arange(6, dtype="int16") % 3, fill_value=0)
    stored.attrs["_ARRAY_DIMENSIONS"] = ["a"]
    data = xr.open_zarr(tmp_path / "z.zarr", chunks=None)["v"]
    with pytest.warns(
        UserWarning, match=r"sat shows stored zeros as NaN.*_as_mask=False"
    ) as caught:
        as_array(data[[3, 1, 2]], "sat")
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="zeros as NaN"):
        as_array(data.load(), "sat")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [None, {}])
def test_times_are_nanoseconds(tmp_path, zarr_format, chunks):
    times = np.datetime64("2020-03-01", "ns") + np.arange(24) * np.timedelta64(90, "m")
    units = {"units": "minutes since 2020-01-01", "dtype": "int64"}
    data = written(tmp_path, times.reshape(4, 6), units, zarr_format, chunks=chunks)
    array = as_array(data, "v")
    assert array.dtype == np.int64
    np.testing.assert_array_equal(whole(array), times.reshape(4, 6).view("int64"))


def test_missing_times_are_not_a_time(tmp_path):
    times = np.array(["2020-01-01", "NaT", "2020-01-03"], "M8[ns]")
    data = written(tmp_path, times, {"units": "days since 2020-01-01", "_FillValue": -5})
    np.testing.assert_array_equal(whole(as_array(data, "v")), times.view("int64"))


def test_the_first_time_is_a_time(tmp_path):
    """0 since the reference is a time, where 0 is no more than the default fill value."""
    group = zarr.open_group(tmp_path / "t.zarr", mode="w", zarr_format=2)
    stored = group.create_array("v", data=np.arange(4), fill_value=0)
    stored.attrs.update(_ARRAY_DIMENSIONS=["a"], units="hours since 2020-01-01")
    data = xr.open_zarr(tmp_path / "t.zarr", chunks=None)["v"]
    expected = np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(1, "h")
    np.testing.assert_array_equal(whole(as_array(data, "v")), expected.view("int64"))


def test_durations_are_nanoseconds(tmp_path):
    spans = np.arange(6) * np.timedelta64(90, "m").astype("m8[ns]")
    data = written(tmp_path, spans, {"units": "minutes", "dtype": "int64"}, decode_timedelta=True)
    np.testing.assert_array_equal(whole(as_array(data, "v")), spans.view("int64"))


def test_times_in_memory_and_in_a_bare_array(tmp_path):
    times = np.datetime64("2020-03-01", "s") + np.arange(6) * np.timedelta64(90, "m")
    expected = times.astype("M8[ns]").view("int64")
    np.testing.assert_array_equal(whole(as_array(xr.DataArray(times, dims="t"), "v")), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored = zarr.create_array(tmp_path / "t", data=times, chunks=(4,), zarr_format=2)
    np.testing.assert_array_equal(whole(as_array(stored, "v")), expected)


def test_cftime_coordinates(tmp_path):
    times = xr.date_range("2000-02-28", periods=6, freq="D", calendar="360_day", use_cftime=True)
    data = xr.DataArray(np.arange(6.0), {"time": times}, "time", "v")
    data.to_dataset().to_zarr(tmp_path / "c.zarr")
    array = pickle.loads(pickle.dumps(as_array(xr.open_zarr(tmp_path / "c.zarr")["v"], "v")))
    assert [str(t) for t in array.coords["time"][1:3]] == [
        "2000-02-29 00:00:00",
        "2000-02-30 00:00:00",
    ]


# --- bare Zarr arrays ---------------------------------------------------------------------------


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


# --- what is refused ----------------------------------------------------------------------------


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


# --- other processes and stores -----------------------------------------------------------------


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
