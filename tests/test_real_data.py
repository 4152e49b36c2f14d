"""One real afternoon: satellite, forecast, national generation and PV systems around shared anchors.

The stores are those that Open Climate Fix ships for its own tests; where they are not, there is nothing to test.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import superbatch as sb
from tests.archive import slow
from tests.processes import ROOT

OCF = ROOT.parent / "shared" / "data" / "ocf"
pytestmark = pytest.mark.skipif(not OCF.is_dir(), reason="the folder with real stores is not here")
MINUTE = np.timedelta64(60_000_000_000, "ns")
HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def arrays() -> dict[str, xr.DataArray]:
    pytest.importorskip("netCDF4")
    systems = xr.open_dataset(OCF / "pv" / "test.nc")
    pv = systems.to_dataarray("system").assign_coords(
        system=[int(name) for name in systems.data_vars]
    )
    return {
        "sat": xr.open_zarr(OCF / "satellite.zarr", chunks=None)["data"],
        "nwp": xr.open_zarr(OCF / "nwp.zarr", chunks=None)["UKV"],
        "gsp": xr.open_zarr(OCF / "gsp.zarr", chunks=None)["generation_mw"],
        "pv": pv.load(),
    }


@pytest.fixture(scope="module")
def sites() -> xr.Dataset:
    """A hundred PV systems, by latitude and longitude."""
    table = pd.read_csv(OCF / "pv" / "UK_PV_metadata.csv")
    return xr.Dataset(
        {"y_osgb": ("system", table.latitude), "x_osgb": ("system", table.longitude)},
        coords={"system": table.system_id.values},
        attrs={"crs": "EPSG:4326"},
    )


def by_grid(sites: xr.Dataset) -> xr.Dataset:
    """The same places in metres of the national grid, called as the forecast's dimensions too."""
    pyproj = pytest.importorskip("pyproj")
    change = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:27700", always_xy=True)
    x, y = change.transform(sites.x_osgb.values, sites.y_osgb.values)
    names = {"x": x, "x_osgb": x, "y": y, "y_osgb": y}
    return xr.Dataset({n: ("system", v) for n, v in names.items()}, coords=sites.coords)


def windows(arrays, crs=None) -> dict[str, sb.Window]:
    at = {"y": "y_osgb", "x": "x_osgb"}
    return {
        "sat": sb.Window(arrays["sat"], time=slice("-15min", "0min"), y=16, x=12, at=at, crs=crs),
        "nwp": sb.Forecast(arrays["nwp"], time=slice("-1h", "1h"), delay="90min", y=8, x=6),
        "gsp": sb.Window(arrays["gsp"], datetime_gmt=slice("-1h", "1h")),
        "pv": sb.Window(arrays["pv"], datetime=slice("-30min", "1h"), system=sb.HERE),
    }


def check(batch, row: int, arrays, where: xr.Dataset) -> None:
    """One sample against xarray, by what it says of its own time and site."""
    t0, system = slow.when(batch["time"][row]), int(batch["system"][row])
    y, x = (float(where[n].sel(system=system)) for n in ("y", "x"))
    sat = arrays["sat"]
    distance = np.hypot(sat.y_osgb.values - y, sat.x_osgb.values - x)
    r, c = np.unravel_index(distance.argmin(), distance.shape)
    box = sat.isel(y=slice(r - 8, r + 8), x=slice(c - 6, c + 6))
    box = box.sel(time=slice(t0 - 15 * MINUTE, t0))
    assert batch["sat"].numpy().dtype == box.dtype
    assert np.array_equal(batch["sat"][row], box.values)

    nwp = arrays["nwp"]
    for k, (run, valid) in enumerate(slow.forecast(nwp, t0, range(-1, 2), "90min", "run")):
        one = nwp.sel(init_time=run, step=(valid - run) / HOUR)
        one = slow.pixels(slow.pixels(one, {"y": y}, 8), {"x": x}, 6)
        assert np.array_equal(batch["nwp"][row][:, k], one.values)

    line = slow.series(arrays["gsp"], "datetime_gmt", t0, "-1h", "1h")
    assert np.array_equal(batch["gsp"][row], line.values, equal_nan=True)
    line = slow.series(arrays["pv"].sel(system=system), "datetime", t0, "-30min", "1h")
    assert line.notnull().all()
    assert np.array_equal(batch["pv"][row], line.values)


def test_every_anchor_of_the_afternoon(arrays, sites) -> None:
    where = by_grid(sites)
    source = sb.ArchiveSource(
        windows(arrays),
        sites=where,
        samples=32,
        sequences=4,
        chunks_per_sequence=1,
        coverage="once",
        include=("time", "system", "nwp_run"),
    )
    said = source.describe()
    # three of the hundred have a series
    assert said["ruled_out"]["system"]["pv: no such site"] == 97
    with sb.SuperbatchDataset(source, 8, replays=1, loaders=2, timeout=60) as dataset:
        batches = list(dataset)
    seen = []
    for batch in batches:
        for row in range(len(batch["time"])):
            check(batch, row, arrays, where)
            seen.append((int(batch["time"][row]), int(batch["system"][row])))
    # From 12:15 to 14:00, for three systems; not from 13:00 to 13:25, where the freshest run that is known is
    # that of 9:00, whose steps end before 14:00.
    assert len(seen) == len(set(seen)) == said["windows"] == (22 - 6) * 3
    assert said["when"]["time"]["nwp: no such step"] == ["2020-04-01T13:00 to 2020-04-01T13:25 (6)"]


def test_places_in_degrees_are_found_on_both_grids(arrays, sites) -> None:
    """A thousand samples around any of the hundred systems; the forecast has a projection of its own."""
    where = by_grid(sites)
    both = sites.assign(y=sites.y_osgb, x=sites.x_osgb)
    made = windows(arrays, crs="EPSG:27700")
    made["nwp"] = sb.Forecast(
        arrays["nwp"], time=slice("-1h", "1h"), delay="90min", y=8, x=6, crs="EPSG:27700"
    )
    made["pv"] = sb.Window(arrays["pv"], datetime=slice("-30min", "1h"))  # of all three
    source = sb.ArchiveSource(
        made, sites=both, samples=1000, sequences=64, include=("time", "system")
    )
    got = slow.samples(source)
    near = {}
    for system in np.unique(got["system"]):
        y, x = (float(where[n].sel(system=system)) for n in ("y", "x"))
        distance = np.hypot(arrays["sat"].y_osgb.values - y, arrays["sat"].x_osgb.values - x)
        near[system] = np.unravel_index(distance.argmin(), distance.shape), (y, x)
    assert len(near) > 50
    sat, nwp = arrays["sat"].load(), arrays["nwp"].load()
    for row in range(1000):
        t0 = slow.when(got["time"][row])
        (r, c), (y, x) = near[got["system"][row]]
        box = sat.isel(y=slice(r - 8, r + 8), x=slice(c - 6, c + 6))
        assert np.array_equal(got["sat"][row], box.sel(time=slice(t0 - 15 * MINUTE, t0)).values)
        pixels = slow.pixels(slow.pixels(nwp, {"y": y}, 8), {"x": x}, 6)
        for k, (run, valid) in enumerate(slow.forecast(nwp, t0, range(-1, 2), "90min", "run")):
            one = pixels.sel(init_time=run, step=(valid - run) / HOUR)
            assert np.array_equal(got["nwp"][row][:, k], one.values)


def test_pixels_of_the_satellite_on_the_grid_of_the_forecast(arrays) -> None:
    """No sites: each sample around a pixel of the turned grid; a thousand of them."""
    sat, nwp = arrays["sat"], arrays["nwp"]
    at = {"y": "y_osgb", "x": "x_osgb"}
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=2, y=8, x=8, at=at),
            "nwp": sb.Forecast(nwp, time=slice("0h", "1h"), delay="90min", y=4, x=4),
        },
        samples=1000,
        sequences=8,
        include=("time", "y", "x"),
    )
    got = slow.samples(source)
    sat, nwp = sat.load(), nwp.load()
    for row in range(1000):
        t0 = slow.when(got["time"][row])
        r = int(np.flatnonzero(sat.y.values == got["y"][row])[0])
        c = int(np.flatnonzero(sat.x.values == got["x"][row])[0])
        box = sat.sel(time=slice(t0, t0 + 5 * MINUTE))[:, r - 4 : r + 4, c - 4 : c + 4]
        assert np.array_equal(got["sat"][row], box.values)
        y, x = float(sat.y_osgb[r, c]), float(sat.x_osgb[r, c])
        pixels = slow.pixels(slow.pixels(nwp, {"y": y}, 4), {"x": x}, 4)
        for k, (run, valid) in enumerate(slow.forecast(nwp, t0, range(2), "90min", "run")):
            one = pixels.sel(init_time=run, step=(valid - run) / HOUR)
            assert np.array_equal(got["nwp"][row][:, k], one.values)
