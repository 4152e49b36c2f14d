"""Decoding of packed values, fill values and times, compared with what xarray shows."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr

from superbatch.archive.arrays import as_array
from tests.archive.reading import DIMS, same, whole

# Stores made by hand have no consolidated metadata; chunks are cut on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]


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
