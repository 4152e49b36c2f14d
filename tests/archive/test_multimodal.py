"""Arrays on grids of their own around one anchor, compared with xarray, one sample at a time."""

from __future__ import annotations

import datetime
from pathlib import Path

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import superbatch as sb
from superbatch.errors import ArgumentError
from tests.archive import slow

FIRST = np.datetime64("2021-03-01", "ns")
MINUTE = np.timedelta64(1, "m").astype("timedelta64[ns]")
HOUR = np.timedelta64(1, "h").astype("timedelta64[ns]")


def stamps(count: int, minutes: int, first: np.datetime64 = FIRST) -> np.ndarray:
    return first + np.arange(count) * minutes * MINUTE


def numbered(dims: dict[str, np.ndarray], dtype: str = "f8") -> xr.DataArray:
    """Every value is its own position."""
    shape = tuple(len(c) for c in dims.values())
    return xr.DataArray(np.arange(np.prod(shape), dtype=dtype).reshape(shape), dims)


def satellite(count: int = 400) -> xr.DataArray:
    y, x = 5000.0 - 100 * np.arange(24), 100.0 * np.arange(30)  # y falls
    return numbered({"time": stamps(count, 5), "y": y, "x": x})


def forecasts(runs: int = 14) -> xr.DataArray:
    steps = np.arange(9) * HOUR
    y, x = 2500.0 + 300 * np.arange(10), -150.0 + 300 * np.arange(12)
    axes = {"init_time": stamps(runs, 180), "step": steps, "y": y, "x": x}
    return numbered({"channel": np.array(["t", "rad"]), **axes})


def power(count: int = 80) -> xr.DataArray:
    return numbered({"time": stamps(count, 30), "site": np.array(["c", "a", "b", "d"])})


def places(names: list[str]) -> xr.Dataset:
    x, y = [1400.0, 1610.0, 1890.0, 1249.0], [3600.0, 3960.0, 3333.0, 4051.0]
    chosen = ["abcd".index(n) for n in names]
    return xr.Dataset(
        {"x": ("site", np.array(x)[chosen]), "y": ("site", np.array(y)[chosen])},
        coords={"site": names},
    )


def written(data: xr.DataArray, folder: Path, chunks: dict[str, int]) -> xr.DataArray:
    path = folder / f"{data.name or 'a'}-{len(list(folder.iterdir()))}.zarr"
    sizes = tuple(min(chunks.get(str(d), n), n) for d, n in data.sizes.items())
    data.to_dataset(name="v").to_zarr(path, encoding={"v": {"chunks": sizes}}, zarr_format=2)
    return xr.open_zarr(path, chunks=None)["v"]


@pytest.mark.parametrize("past", ["run", "freshest"])
def test_three_archives_around_sites(tmp_path, past) -> None:
    sat = written(satellite(), tmp_path, {"time": 40, "y": 7, "x": 11})
    nwp = written(forecasts(), tmp_path, {"init_time": 2, "step": 9, "y": 10, "x": 12})
    pv = written(power(), tmp_path, {"time": 20, "site": 2})
    where = places(["a", "b", "c"])
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=slice("-15min", "0min"), y=4, x=5),
            "nwp": sb.Forecast(nwp, time=slice("-1h", "2h"), delay="2h", past=past, y=3, x=2),
            "pv": sb.Window(pv, time=slice("-1h", "2h"), site=sb.HERE),
        },
        sites=where,
        samples=600,
        sequences=12,
        chunks_per_sequence=2,
        include=["time", "site", "x", "nwp_run", "nwp_time"],
    )
    got = slow.samples(source)
    names = np.array(sorted(where.site.values))
    seen = set()
    for row in range(len(got["time"])):
        t0, site = slow.when(got["time"][row]), names[got["site"][row]]
        place = {d: float(where[d].sel(site=site)) for d in ("y", "x")}
        assert got["x"][row] == place["x"]
        seen.add((t0, site))
        window = slow.series(sat, "time", t0, "-15min", "0min")
        box = slow.pixels(slow.pixels(window, {"y": place["y"]}, 4), {"x": place["x"]}, 5)
        assert np.array_equal(got["sat"][row], box.values)
        pairs = slow.forecast(nwp, t0, range(-1, 3), "2h", past)
        for k, (run, valid) in enumerate(pairs):
            one = nwp.sel(init_time=run, step=valid - run)
            one = slow.pixels(slow.pixels(one, {"y": place["y"]}, 3), {"x": place["x"]}, 2)
            assert np.array_equal(got["nwp"][row][:, k], one.values)
            assert slow.when(got["nwp_run"][row][k]) == run
            assert slow.when(got["nwp_time"][row][k]) == valid
        line = slow.series(pv.sel(site=site), "time", t0, "-1h", "2h")
        assert np.array_equal(got["pv"][row], line.values)
    assert len(seen) > 300


@pytest.mark.parametrize(
    "order",
    [
        ("init_time", "channel", "step", "y", "x"),
        ("step", "y", "channel", "init_time", "x"),
        ("channel", "y", "init_time", "x", "step"),
        ("step", "init_time", "x", "y", "channel"),
    ],
)
@pytest.mark.parametrize("edge", ["drop", "fill"])
def test_runs_and_steps_may_be_any_two_dimensions(order, edge) -> None:
    nwp = forecasts().transpose(*order)
    source = sb.ArchiveSource(
        {
            "pv": sb.Window(power(), time=1, site=sb.HERE),
            "nwp": sb.Forecast(nwp, time=slice("-1h", "2h"), delay="2h", edge=edge, y=3, x=2),
        },
        sites=places(["a", "b", "c"]),
        samples=60,
        sequences=1,
        include=["time", "site"],
    )
    got, where = slow.samples(source), places(["a", "b", "c"])
    kept = [d for d in order if d != "step"]
    at, rest = kept.index("init_time"), [d for d in kept if d != "init_time"]
    for row in range(len(got["time"])):
        t0, site = slow.when(got["time"][row]), "abc"[got["site"][row]]
        place = {d: float(where[d].sel(site=site)) for d in ("y", "x")}
        for k, (run, valid) in enumerate(slow.forecast(nwp, t0, range(-1, 3), "2h", "run")):
            one = nwp.sel(init_time=run, step=valid - run)
            one = slow.pixels(slow.pixels(one, {"y": place["y"]}, 3), {"x": place["x"]}, 2)
            mine = np.take(got["nwp"][row], k, axis=at)
            assert np.array_equal(mine, one.transpose(*rest).values)


def test_the_anchors_that_are_drawn_are_those_that_have_everything(tmp_path) -> None:
    """Counted one by one: satellite gap, first run, last hours, a site without values for a while."""
    sat = satellite(300).isel(time=np.r_[0:100, 106:300])
    nwp = forecasts(8).drop_isel(init_time=3)
    pv = power(48).copy()
    pv[20:23, 1] = np.nan  # site "a"
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=slice("-15min", "0min")),
            "nwp": sb.Forecast(nwp, time=slice("0h", "2h"), delay="1h", max_age="3h"),
            "pv": sb.Window(pv, time=slice("-1h", "1h"), site=sb.HERE),
        },
        sites=places(["a", "b"]),
        samples=20000,
        sequences=64,
        include=["time", "site"],
    )
    got = slow.samples(source)
    drawn = set(zip(got["time"].tolist(), got["site"].tolist(), strict=True))
    expected = set()
    times, runs = sat.time.values, nwp.init_time.values
    for t0 in times:
        wanted = t0 + np.arange(-3, 1) * 5 * MINUTE
        if not np.isin(wanted, times).all():
            continue
        known = runs[runs <= t0 - HOUR]
        if not len(known) or t0 - known[-1] > 3 * HOUR:
            continue
        valid = t0.astype("datetime64[h]").astype("datetime64[ns]") + np.arange(3) * HOUR
        if not np.isin(valid - known[-1], nwp.step.values).all():
            continue
        for number, site in enumerate(["a", "b"]):
            anchor = pv.time.values[slow.latest(pv.time.values, t0)]
            stamps_ = anchor + np.arange(-2, 3) * 30 * MINUTE
            if t0 - anchor >= 30 * MINUTE or not np.isin(stamps_, pv.time.values).all():
                continue
            if np.isnan(pv.sel(site=site, time=stamps_).values).any():
                continue
            expected.add((int(t0.astype(np.int64)), number))
    assert drawn == expected
    assert source.describe()["windows"] == len(expected)
    ruled_out = source.describe()["ruled_out"]
    assert "nwp: no run old enough" in ruled_out["time"]
    assert "nwp: run too old" in ruled_out["time"]
    assert "pv: NaN" in ruled_out["pairs"]


@given(
    st.integers(0, 3), st.sampled_from(["0h", "90min", "4h"]), st.sampled_from(["run", "freshest"])
)
@settings(max_examples=10)
def test_nothing_later_than_allowed_is_seen(seed, delay, past) -> None:
    """Values are the times at which they become known."""
    sat = satellite(200)
    sat = sat.copy(data=np.broadcast_to(sat.time.values.astype("i8")[:, None, None], sat.shape))
    nwp = forecasts()
    known = nwp.init_time.values.astype("i8") + slow.offset(delay).astype("i8")
    nwp = nwp.copy(data=np.broadcast_to(known[None, :, None, None, None], nwp.shape))
    pv = power(40)
    pv = pv.copy(data=np.broadcast_to(pv.time.values.astype("i8")[:, None], pv.shape))
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=slice("-20min", "0min"), y=3, x=3),
            "nwp": sb.Forecast(nwp, time=slice("-1h", "3h"), delay=delay, past=past, y=2, x=2),
            "pv": sb.Window(pv, time=slice("-1h", "0h"), site=sb.HERE),
        },
        sites=places(["a", "b", "c", "d"]),
        samples=200,
        sequences=8,
        include="time",
    )
    got = slow.samples(source, seed=seed)
    for name in ("sat", "nwp", "pv"):
        latest = got[name].reshape(len(got["time"]), -1).max(axis=1)
        assert (latest <= got["time"]).all(), name
        assert (latest > got["time"] - 12 * HOUR.astype("i8")).all(), name


def test_random_pixels_of_the_reference_on_another_grid() -> None:
    sat, nwp = satellite(50), forecasts(4)
    field = nwp.isel(channel=0, step=0).rename(init_time="time")
    source = sb.ArchiveSource(
        {"sat": sb.Window(sat, time=2, y=4, x=4), "nwp": sb.Window(field, time=1, y=2, x=3)},
        samples=300,
        sequences=6,
        include=["time", "y", "x"],
    )
    got = slow.samples(source)
    for row in range(300):
        t0 = slow.when(got["time"][row])
        box = field.isel(time=[slow.latest(field.time.values, t0)])
        box = slow.pixels(slow.pixels(box, {"y": got["y"][row]}, 2), {"x": got["x"][row]}, 3)
        assert np.array_equal(got["nwp"][row], box.values)
        near = slow.pixels(sat.sel(time=slice(t0, t0 + 5 * MINUTE)), {"y": got["y"][row]}, 4)
        near = slow.pixels(near, {"x": got["x"][row]}, 4)
        assert np.array_equal(got["sat"][row], near.values)
    assert len(set(got["y"].tolist())) > 5


def test_a_turned_grid_is_found_through_two_dimensional_coordinates() -> None:
    sat = satellite(30)
    turn = np.deg2rad(20)
    v, u = np.meshgrid(np.arange(40) * 90.0, np.arange(40) * 90.0, indexing="ij")
    north = 2600 + np.cos(turn) * v - np.sin(turn) * u + 1200
    east = np.sin(turn) * v + np.cos(turn) * u - 300
    radar = numbered({"time": stamps(30, 5), "v": np.arange(40), "u": np.arange(40)})
    radar = radar.assign_coords(north=(("v", "u"), north), east=(("v", "u"), east))
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=1, y=2, x=2),
            "radar": sb.Window(radar, time=1, v=4, u=4, at={"v": "north", "u": "east"}),
        },
        samples=200,
        sequences=4,
        include=["time", "y", "x"],
    )
    got = slow.samples(source)
    for row in range(200):
        distance = np.hypot(north - got["y"][row], east - got["x"][row])
        v0, u0 = np.unravel_index(distance.argmin(), distance.shape)
        at = slow.latest(radar.time.values, slow.when(got["time"][row]))
        box = radar[at : at + 1, v0 - 2 : v0 + 2, u0 - 2 : u0 + 2].values
        assert np.array_equal(got["radar"][row], box)


def test_another_projection() -> None:
    pyproj = pytest.importorskip("pyproj")
    change = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:27700", always_xy=True)
    lat, lon = np.array([52.1, 53.4, 51.7]), np.array([-1.2, -2.1, 0.3])
    x, y = change.transform(lon, lat)
    grid = numbered({"y": np.arange(100_000, 500_000, 2000.0), "x": np.arange(3e5, 6.5e5, 2000.0)})
    grid = grid.expand_dims(time=stamps(10, 5)).copy()
    where = xr.Dataset(
        {"y": ("site", lat), "x": ("site", lon)},
        coords={"site": [10, 20, 30]},
        attrs={"crs": "EPSG:4326"},
    )
    source = sb.ArchiveSource(
        {"a": sb.Window(grid, time=1, y=6, x=6, crs="EPSG:27700")},
        sites=where,
        samples=30,
        include="site",
    )
    got = slow.samples(source)
    for row in range(30):
        number = [10, 20, 30].index(got["site"][row])
        box = slow.pixels(slow.pixels(grid[:1], {"y": y[number]}, 6), {"x": x[number]}, 6)
        assert np.array_equal(got["a"][row], box.values)


def test_all_sites_at_one_time() -> None:
    sat, pv = (
        satellite(60),
        power(20).assign_coords(
            x=("site", [1890.0, 1400.0, 1610.0, 1249.0]),
            y=("site", [3333.0, 3600.0, 3960.0, 4051.0]),
        ),
    )
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=3, y=4, x=4),
            "pv": sb.Window(pv, time=slice("-30min", "0min"), site=sb.HERE),
        },
        sites="all",
        samples=40,
        include=["time", "site"],
    )
    got = slow.samples(source)
    assert got["sat"].shape == (40, 4, 3, 4, 4)
    assert got["pv"].shape == (40, 4, 2)
    names = np.array(sorted(pv.site.values))
    for row in range(40):
        t0 = slow.when(got["time"][row][0])
        sites = names[got["site"][row]]
        assert sorted(sites) == ["a", "b", "c", "d"]
        for number, site in enumerate(sites):
            one = pv.sel(site=site)
            line = slow.series(one, "time", t0, "-30min", "0min")
            assert np.array_equal(got["pv"][row][number], line.values)
            box = slow.pixels(sat.sel(time=slice(t0, t0 + 10 * MINUTE)), {"y": float(one.y)}, 4)
            box = slow.pixels(box, {"x": float(one.x)}, 4)
            assert np.array_equal(got["sat"][row][number], box.values)


def test_over_the_edge_is_filled_and_masked() -> None:
    sat = satellite(20)
    where = xr.Dataset(
        {"y": ("site", [5000.0, 3500.0]), "x": ("site", [0.0, 2890.0])}, coords={"site": [1, 2]}
    )
    windows = {"sat": sb.Window(sat, time=1, y=4, x=4)}
    with pytest.raises(ArgumentError, match="ruled out: 2 by sat: over its edge"):
        sb.ArchiveSource(windows, sites=where)
    windows = {"sat": sb.Window(sat, time=1, y=4, x=4, edge="fill", mask=True)}
    got = slow.samples(sb.ArchiveSource(windows, sites=where, samples=50, include=["time", "site"]))
    for row in range(50):
        y, x = {1: (0, 0), 2: (15, 29)}[int(got["site"][row])]
        at = slow.latest(sat.time.values, slow.when(got["time"][row]))
        for i in range(4):
            for j in range(4):
                there = 0 <= y - 2 + i < 24 and 0 <= x - 2 + j < 30
                assert got["sat_mask"][row][0, i, j] == there
                value = got["sat"][row][0, i, j]
                if there:
                    assert value == sat.values[at, y - 2 + i, x - 2 + j]
                else:
                    assert np.isnan(value)


# situation: forecast steps hourly to 48 h, three-hourly after
def test_a_change_of_step_is_never_bridged() -> None:
    hours = np.r_[0:7, 9:19:3]
    runs = stamps(30, 360)
    data = numbered({"init_time": runs, "step": hours.astype("f8"), "x": np.arange(3)})
    sat = numbered({"time": stamps(1500, 5), "x": np.arange(3)})
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=1),
            "nwp": sb.Forecast(data, time=slice("0h", "3h"), delay="1h"),
        },
        samples=3000,
        sequences=9,
        include=["time", "nwp_run", "nwp_time"],
    )
    got = slow.samples(source)
    lead = (got["nwp_time"] - got["nwp_run"]) // HOUR.astype("i8")
    assert (np.diff(lead, axis=1) == 1).all()
    assert lead.max() == 6
    for row in range(200):
        run = np.flatnonzero(runs == slow.when(got["nwp_run"][row][0]))[0]
        steps = [np.flatnonzero(hours == h)[0] for h in lead[row]]
        assert np.array_equal(got["nwp"][row], data.values[run, steps])
    assert source.describe()["ruled_out"]["time"]["nwp: no such step"] > 0


def test_accumulated_values_become_differences() -> None:
    nwp = forecasts(6)
    accumulated = nwp.copy()
    rate = np.arange(1, 10) ** 2.0
    accumulated.loc[{"channel": "rad"}] = np.cumsum(rate)[None, :, None, None] + 0 * nwp.isel(
        channel=0
    )
    sat = numbered({"time": stamps(150, 5), "x": np.arange(3)})
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=1),
            "nwp": sb.Forecast(accumulated, time=slice("0h", "3h"), accumulated=["rad"]),
        },
        samples=200,
        sequences=4,
        include=["nwp_run", "nwp_time"],
    )
    got = slow.samples(source)
    lead = (got["nwp_time"] - got["nwp_run"]) // HOUR.astype("i8")
    assert lead.min() == 0
    for row in range(200):
        run = np.flatnonzero(nwp.init_time.values == slow.when(got["nwp_run"][row][0]))[0]
        assert np.array_equal(got["nwp"][row][1, :, 0, 0], rate[lead[row]])
        assert np.array_equal(got["nwp"][row][0], nwp.values[0, run, lead[row]])


def test_late_runs_and_dropout_follow_the_seed() -> None:
    nwp, sat = forecasts(14), numbered({"time": stamps(400, 5), "x": np.arange(3)})
    windows = {
        "sat": sb.Window(sat, time=1, dropout=0.25, mask=True),
        "nwp": sb.Forecast(nwp, time=slice("0h", "1h"), late={"3h": 0.3, "6h": 0.1}),
    }
    source = sb.ArchiveSource(windows, samples=4000, include=["time", "nwp_run"], sequences=6)
    got, again, other = (slow.samples(source, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(got[k], again[k], equal_nan=True) for k in got)
    assert not np.array_equal(got["nwp_run"], other["nwp_run"])
    age = (got["time"] - got["nwp_run"][:, 0]) // (3 * HOUR.astype("i8"))
    shares = np.bincount(age, minlength=3)[:3] / len(age)
    assert np.allclose(shares, [0.6, 0.3, 0.1], atol=0.04)
    gone = np.isnan(got["sat"]).all(axis=(1, 2))
    assert abs(gone.mean() - 0.25) < 0.03
    assert np.array_equal(~gone, got["sat_mask"].all(axis=(1, 2)))


def test_values_are_normalised_filled_and_masked() -> None:
    data = numbered({"time": stamps(50, 5), "channel": np.array(["u", "v"]), "x": np.arange(4)})
    data = data.astype("f4").copy()
    data[10:20, 1, 2] = np.nan
    mean = xr.DataArray([10.0, 20.0], {"channel": ["v", "u"]})  # in another order
    window = sb.Window(data, time=2, mean=mean, std=4.0, nan=-9, mask=True)
    got = slow.samples(sb.ArchiveSource({"a": window}, samples=100, include="time"))
    for row in range(100):
        at = slow.latest(data.time.values, slow.when(got["time"][row]))
        raw = data.values[at : at + 2]
        expected = (raw - np.array([20.0, 10.0], "f4")[:, None]) / np.float32(4)
        assert np.array_equal(got["a_mask"][row], ~np.isnan(raw))
        assert np.array_equal(got["a"][row], np.where(np.isnan(raw), np.float32(-9), expected))


# situation: int16 with scale_factor, add_offset, _FillValue
def test_packed_integers(tmp_path) -> None:
    values = np.arange(60, dtype="f4").reshape(20, 3) / 4
    values[5, 1] = np.nan
    data = xr.DataArray(values, {"time": stamps(20, 5)}, ("time", "x"))
    packing = {"dtype": "int16", "scale_factor": 0.25, "add_offset": 3.0, "_FillValue": -999}
    data.to_dataset(name="v").to_zarr(tmp_path / "a.zarr", encoding={"v": packing}, zarr_format=2)
    opened = xr.open_zarr(tmp_path / "a.zarr")["v"]
    got = slow.samples(
        sb.ArchiveSource({"a": sb.Window(opened, time=2)}, samples=40, include="time")
    )
    raw = sb.ArchiveSource(
        {"a": sb.Window(opened, time=2, decode=False)}, samples=40, include="time"
    )
    stored = slow.samples(raw)
    assert got["a"].dtype == np.float32
    assert stored["a"].dtype == np.int16
    for row in range(40):
        at = slow.latest(opened.time.values, slow.when(got["time"][row]))
        assert np.array_equal(got["a"][row], values[at : at + 2], equal_nan=True)
        at = slow.latest(opened.time.values, slow.when(stored["time"][row]))
        expected = np.where(np.isnan(values[at : at + 2]), -999, (values[at : at + 2] - 3) * 4)
        assert np.array_equal(stored["a"][row], expected)


# situation: a cftime calendar
def test_two_cftime_axes_of_one_calendar() -> None:
    begin = cftime.Datetime360Day(2000, 1, 1)
    days = np.array([begin + datetime.timedelta(days=d) for d in range(90)])
    daily = xr.DataArray(np.arange(90), {"time": days}, ("time",))
    decades = xr.DataArray(np.arange(9), {"time": days[::10]}, ("time",))
    source = sb.ArchiveSource(
        {"a": sb.Window(daily, time=2), "b": sb.Window(decades, time=slice("-10D", "0D"))},
        samples=200,
    )
    got = slow.samples(source)
    assert np.array_equal(got["b"][:, 1], got["a"][:, 0] // 10)
    assert np.array_equal(got["b"][:, 0], got["a"][:, 0] // 10 - 1)
    real = xr.DataArray(np.arange(9), {"time": stamps(9, 1440)}, ("time",))
    with pytest.raises(ArgumentError, match="calendar"):
        sb.ArchiveSource({"a": sb.Window(daily, time=2), "b": sb.Window(real, time=1)})


# situation: time has gaps; duplicated stamps, one out of order
@pytest.mark.parametrize(
    ("order", "message"),
    [(np.r_[0:5, 4, 5:9], "1 stamps of 'time' repeat"), (np.r_[0:5, 2, 5:9], "go back")],
)
def test_stamps_out_of_order_are_named(order, message) -> None:
    pv = power(20).isel(time=order)
    windows = {"sat": sb.Window(satellite(20), time=1), "pv": sb.Window(pv, time=1)}
    with pytest.raises(ArgumentError, match=message):
        sb.ArchiveSource(windows)


@pytest.mark.parametrize(
    ("windows", "sites", "message"),
    [
        ({"pv": sb.Window(power(), time=1, site=sb.HERE)}, None, "needs sites="),
        ({"nwp": sb.Forecast(forecasts(), time=2)}, None, "cannot be the reference"),
        (
            {"a": sb.Window(power(), time=1), "nwp": sb.Forecast(power(), time=2)},
            None,
            "1-d coordinate 'init_time'",
        ),
        ({"pv": sb.Window(power(), time=1)}, xr.Dataset(), "it must have one"),
        (
            {"sat": sb.Window(satellite(), time=1, y=2, x=2)},
            places(["a", "a"]),
            "the same name twice",
        ),
        ({"pv": sb.Window(power(), time=1)}, "some", 'write "all", or a Dataset'),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(windows, sites, message) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        sb.ArchiveSource(windows, sites=sites)
    assert "\n" not in str(caught.value)
