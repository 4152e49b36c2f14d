"""Arrays on grids of their own around one anchor, end to end: out of stores, through real loaders."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import superbatch as sb
from superbatch.errors import ArgumentError
from superbatch.slots import Layout, PrivateSlots
from superbatch.source import Settings
from tests import processes
from tests.archive import slow
from tests.counting import CountingStore, reads

FIRST = np.datetime64("2021-03-01", "ns")
MINUTE = np.timedelta64(60_000_000_000, "ns")
HOUR = 60 * MINUTE
SITES = 30


def stamps(count: int, minutes: int, begin: int = 0) -> np.ndarray:
    return FIRST + (begin + np.arange(count) * minutes) * MINUTE


def numbered(axes: dict[str, np.ndarray], dtype: str = "f4") -> xr.DataArray:
    """Every value is its own position."""
    shape = tuple(len(c) for c in axes.values())
    return xr.DataArray(np.arange(np.prod(shape)).astype(dtype).reshape(shape), axes)


def satellite(count: int = 300) -> xr.DataArray:
    """Every 5 minutes, with a gap of an hour; y falls."""
    y, x = 5000.0 - 100 * np.arange(32), 100.0 * np.arange(40)
    whole = numbered({"time": stamps(count + 11, 5), "y": y, "x": x}, "i4")
    return whole.isel(time=np.r_[0:150, 161 : count + 11])


def forecasts(runs: int = 12) -> xr.DataArray:
    """Every 3 hours at half past, one run missing; two channels."""
    y, x = 1500.0 + 300 * np.arange(14), -150.0 + 300 * np.arange(15)
    init = np.delete(stamps(runs, 180, 30), 5)
    axes = {"init_time": init, "step": np.arange(12), "y": y, "x": x}
    return numbered({"channel": np.array(["t", "rad"]), **axes})


def power() -> xr.DataArray:
    """Half-hourly, in another order than the sites, with NaN here and there."""
    rng = np.random.default_rng(0)
    names = rng.permutation([f"s{k:02}" for k in range(SITES + 5)])
    data = numbered({"time": stamps(70, 30), "site": names}, "f4")
    for _ in range(60):
        at, site = rng.integers(70), rng.integers(SITES + 5)
        data[at : at + rng.integers(1, 6), site] = np.nan
    return data


def places(count: int = SITES) -> xr.Dataset:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(300, 3500, count), rng.uniform(2300, 4700, count)
    names = [f"s{k:02}" for k in range(count)]
    return xr.Dataset({"x": ("site", x), "y": ("site", y)}, coords={"site": names})


def written(data: xr.DataArray, path: Path, store=None, **chunks: int) -> xr.DataArray:
    sizes = tuple(min(chunks.get(str(d), n), n) for d, n in data.sizes.items())
    encoding = {"v": {"chunks": sizes, **({"fill_value": -1} if data.dtype.kind == "i" else {})}}
    # Zarr 3 warns of strings of fixed length
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_dataset(name="v").to_zarr(
            path, encoding=encoding, zarr_format=3, consolidated=False
        )
    where = path if store is None else store
    return xr.open_zarr(where, chunks=None, consolidated=False)["v"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> dict[str, xr.DataArray]:
    folder = tmp_path_factory.mktemp("stores")
    return {
        "sat": written(satellite(), folder / "sat.zarr", time=24, y=16, x=16),
        "nwp": written(forecasts(), folder / "nwp.zarr", init_time=1, step=12, y=7, x=8),
        "pv": written(power(), folder / "pv.zarr", time=20, site=9),
    }


def windows(data: dict[str, xr.DataArray], **options) -> dict[str, sb.Window]:
    return {
        "sat": sb.Window(data["sat"], time=slice("-15min", "5min"), y=6, x=5),
        "nwp": sb.Forecast(data["nwp"], time=slice("-1h", "2h"), delay="2h", y=3, x=4, **options),
        "pv": sb.Window(data["pv"], time=slice("-1h", "1h"), site=sb.HERE),
    }


INCLUDE = ("time", "site", "nwp_run", "nwp_time")


def check(batches, data, past: str = "run") -> set[tuple[np.datetime64, str]]:
    """Every sample against xarray; the anchors that were seen."""
    sat, nwp, pv = (data[name].load() for name in ("sat", "nwp", "pv"))
    where, seen = places(), set()
    lines = {site: pv.sel(site=site) for site in where.site.values}
    spots = {site: {d: float(where[d].sel(site=site)) for d in ("y", "x")} for site in lines}
    for batch in batches:
        assert batch["sat"].dtype == torch.int32
        for row, site in enumerate(batch["site"]):
            t0 = slow.when(batch["time"][row])
            place = spots[site]
            seen.add((t0, site))
            box = sat.sel(time=slice(t0 - 15 * MINUTE, t0 + 5 * MINUTE))
            box = slow.pixels(slow.pixels(box, {"y": place["y"]}, 6), {"x": place["x"]}, 5)
            assert np.array_equal(batch["sat"][row], box.values)
            line = slow.series(lines[site], "time", t0, "-1h", "1h")
            assert line.notnull().all()
            assert np.array_equal(batch["pv"][row], line.values)
            # valid times are at half past, as the runs are
            begin = t0 - (t0 - FIRST - 30 * MINUTE) % HOUR
            for k, hour in enumerate(range(-1, 3)):
                valid = begin + hour * HOUR
                known = nwp.init_time.values
                known = known[known <= t0 - 2 * HOUR]
                if past == "freshest" and valid <= t0:
                    known = known[known <= valid]
                step = int((valid - known[-1]) / HOUR)
                one = nwp.sel(init_time=known[-1], step=step)
                one = slow.pixels(slow.pixels(one, {"y": place["y"]}, 3), {"x": place["x"]}, 4)
                assert np.array_equal(batch["nwp"][row][:, k], one.values)
                assert slow.when(batch["nwp_run"][row][k]) == known[-1]
                assert slow.when(batch["nwp_time"][row][k]) == valid
    return seen


@pytest.mark.parametrize(
    ("past", "options"),
    [
        ("run", {"loaders": 2}),
        ("freshest", {"turnover": 0.25}),
        ("run", {"dask-backed": True, "chunks_per_sequence": {"time": 2, "site": 2}}),
    ],
)
def test_samples_out_of_loaders_are_those_of_xarray(stored, past, options) -> None:
    options = dict(options)
    data = stored
    if options.pop("dask-backed", False):
        data = {name: a.chunk() for name, a in stored.items()}
        data["sat"] = stored["sat"].chunk({"time": (50, 24, 7, 219), "y": 16, "x": 16})
    loaders = options.pop("loaders", 1)
    source = sb.ArchiveSource(
        windows(data, past=past),
        sites=places(),
        samples=256,
        sequences=8,
        include=INCLUDE,
        **options,
    )
    with sb.SuperbatchDataset(
        source, 32, replays=1, loaders=loaders, batches_per_epoch=22, timeout=60
    ) as dataset:
        seen = check(dataset, data, past)
    assert len({t0 for t0, _ in seen}) > 60
    assert len({site for _, site in seen}) > 15


def everything_there(data) -> set[tuple[int, str]]:
    """Anchors, from the definition."""
    sat, nwp, pv = (data[name].load() for name in ("sat", "nwp", "pv"))
    where, found = places(), set()
    inside = []
    for site in where.site.values:
        good = True
        for array, sizes in ((sat, (6, 5)), (nwp, (3, 4))):
            for dim, size in zip(("y", "x"), sizes, strict=True):
                at = int(np.abs(array[dim].values - float(where[dim].sel(site=site))).argmin())
                good &= size // 2 <= at <= array.sizes[dim] - (size - size // 2)
        inside += [site] if good else []
    for t0 in sat.time.values:
        if not np.isin(t0 + np.arange(-3, 2) * 5 * MINUTE, sat.time.values).all():
            continue
        runs = nwp.init_time.values[nwp.init_time.values <= t0 - 2 * HOUR]
        begin = t0 - (t0 - FIRST - 30 * MINUTE) % HOUR
        if not len(runs) or not 0 <= (begin - HOUR - runs[-1]) / HOUR <= 8:
            continue
        anchor = pv.time.values[slow.latest(pv.time.values, t0)]
        line = pv.sel(time=slice(anchor - HOUR, anchor + HOUR))
        if line.sizes["time"] < 5:
            continue
        there = dict(zip(line.site.values, line.notnull().all("time").values, strict=True))
        for site in inside:
            if there[site]:
                found.add((int(t0.astype("i8")), site))
    return found


def test_an_epoch_over_two_ranks_holds_every_anchor_that_has_everything_once(stored) -> None:
    source = sb.ArchiveSource(
        windows(stored), sites=places(), samples=512, sequences=16, coverage="once", include=INCLUDE
    )
    seen: list[tuple[int, str]] = []
    lengths = set()
    for rank in range(2):
        with sb.SuperbatchDataset(
            source, 64, replays=1, rank=rank, world_size=2, timeout=60
        ) as dataset:
            batches = list(dataset)
        lengths.add(len(batches))
        for batch in batches:
            seen += zip(batch["time"].tolist(), batch["site"], strict=True)
    expected = everything_there(stored)
    assert len(expected) > 1000
    assert len(seen) == len(set(seen)) == source.describe()["windows"]
    assert set(seen) == expected
    assert len(lengths) == 1


def test_nothing_later_than_allowed_comes_out_of_a_loader(tmp_path) -> None:
    """Values are the times at which they become known, in seconds; and their own places."""
    sat, nwp, pv = satellite(), forecasts(), power()
    second = np.timedelta64(1, "s")

    def told(array, known, dim):
        seconds = ((known - FIRST) / second).astype("i4")
        values = xr.DataArray(seconds, {dim: array[dim]}, (dim,)).broadcast_like(array)
        return values.transpose(*array.dims)

    delay = 90 * MINUTE
    data = {
        "sat": written(told(sat, sat.time.values, "time"), tmp_path / "a.zarr", time=24, y=16),
        "nwp": written(
            told(nwp, nwp.init_time.values + delay, "init_time"), tmp_path / "b.zarr", init_time=2
        ),
        "pv": told(pv, pv.time.values, "time"),
    }
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(data["sat"], time=slice("-15min", "0min"), y=4, x=4),
            "nwp": sb.Forecast(
                data["nwp"],
                time=slice("-2h", "3h"),
                delay="90min",
                past="freshest",
                late={"3h": 0.3},
                y=2,
                x=2,
            ),
            "pv": sb.Window(data["pv"], time=slice("-2h", "0h"), site=sb.HERE),
        },
        sites=places(),
        samples=256,
        sequences=8,
        turnover=0.5,
        include="time",
    )
    ages = []
    with sb.SuperbatchDataset(source, 64, replays=1, batches_per_epoch=16, timeout=60) as dataset:
        for batch in dataset:
            now = ((batch["time"].numpy() - FIRST.astype("i8")) // 10**9).astype("i8")
            for name in ("sat", "nwp", "pv"):
                latest = batch[name].numpy().reshape(len(now), -1).max(axis=1)
                assert (latest <= now).all(), name
                ages.append((name, now - latest))
    # and not later than needed: some of each came out the moment they were known
    for name, step in (("sat", 0), ("nwp", 600), ("pv", 0)):
        assert min(age.min() for other, age in ages if other == name) <= step


def test_no_chunk_is_read_twice_for_one_superbatch(tmp_path) -> None:
    log = tmp_path / "log"
    data = {}
    for name, array, chunks in (
        ("sat", satellite(), {"time": 24, "y": 16, "x": 16}),
        ("nwp", forecasts(), {"init_time": 1, "step": 12, "y": 7, "x": 8}),
    ):
        folder = tmp_path / f"{name}.zarr"
        data[name] = written(array, folder, CountingStore.at(folder, log), **chunks)
    data["pv"] = power()
    log.unlink(missing_ok=True)
    source = sb.ArchiveSource(windows(data), sites=places(), samples=256, sequences=12)
    feed = source.bind(Settings(8, 0, 0, 1, True, 1, 2))
    slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
    filler = feed.open()
    try:
        for index in (1, 2):
            before = len(reads(log))
            filler.start(0, index, slot).finish()
            keys = [key for key, *_ in reads(log)[before:]]
            assert len(keys) > 20
            assert len(keys) == len(set(keys))
    finally:
        filler.close()


def test_values_in_memory_are_there_once_for_all_loaders() -> None:
    count = 40_000  # 6 MB
    series = numbered({"time": stamps(count, 5), "site": np.arange(SITES)}, "f4")
    series.values[:] += 0.25
    source = sb.ArchiveSource(
        {"pv": sb.Window(series, time=4, site=sb.HERE)},
        sites=xr.Dataset(coords={"site": np.arange(SITES)}),
        samples=64,
        sequences=2,
        include=("time", "site"),
    )
    before = processes.shared_memory(os.getpid())
    with sb.SuperbatchDataset(
        source, 16, replays=1, loaders=2, batches_per_epoch=16, timeout=60
    ) as dataset:
        for batch in dataset:
            at = (batch["time"].numpy() - FIRST.astype("i8")) // (5 * MINUTE.astype("i8"))
            expected = series.values[at[:, None] + np.arange(4), batch["site"].numpy()[:, None]]
            assert np.array_equal(batch["pv"], expected)
        ours = processes.shared_memory(os.getpid()) - before
        loaders = processes.descendants(os.getpid())
        sizes = {}
        for pid in [os.getpid(), *loaders]:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                parts = line.split(None, 5)
                if len(parts) == 6 and parts[5].startswith("/dev/shm/") and int(parts[4]) in ours:
                    begin, end = (int(n, 16) for n in parts[0].split("-"))
                    sizes.setdefault(int(parts[4]), {})[pid] = end - begin
        large = {inode: by for inode, by in sizes.items() if max(by.values()) >= series.nbytes}
        assert len(large) == 1
        (by,) = large.values()
        assert len(set(by) & set(loaders)) == 2  # one file, mapped by both
    del dataset, source
    assert not processes.named_segments()
    assert processes.until(lambda: not processes.holders(set(large)), 5)


@pytest.mark.parametrize("kind", ["i2", "f4"])
def test_on_the_device_and_in_the_loader_it_is_the_same(kind) -> None:
    sat = satellite().astype(kind)
    if kind == "f4":
        sat.values[::7, ::3] = np.nan
    mean, std = 123.4, xr.DataArray(np.linspace(1, 9, 40), dims="x").isel(x=slice(0, 6))
    served = []
    for where in ("loader", "device"):
        window = sb.Window(
            sat, time=2, y=6, x=6, mean=mean, std=std, normalize=where, edge="fill",
            nan=-2.5, mask=True, dropout=0.2,
        )  # fmt: skip
        source = sb.ArchiveSource(
            {"sat": window}, samples=64, sequences=2, transform=None, include="time"
        )
        feed = source.bind(Settings(8, 0, 0, 1, True, 1, 1))
        assert feed.fields["sat"][1] == np.dtype("f4" if where == "loader" else kind)
        with sb.SuperbatchDataset(
            source, 8, replays=2, batches_per_epoch=16, deterministic=True, timeout=60
        ) as dataset:
            served.append(list(dataset))
    for here, there in zip(*served, strict=True):
        assert here.keys() == there.keys()
        assert there["sat"].dtype == torch.float32
        assert torch.equal(here["sat"], there["sat"])
        assert torch.equal(here["sat_mask"], there["sat_mask"])
        assert (here["sat"][~here["sat_mask"]] == -2.5).all()
    gone = torch.cat([~b["sat_mask"].flatten(1).any(1) for b in served[0]])
    partly = torch.cat([~b["sat_mask"].flatten(1).all(1) for b in served[0]]) & ~gone
    assert gone.any()
    assert partly.any()


def everything(sample):
    assert set(sample) == {"sat", "sat_mask", "pv", "time", "site"}
    return {"sat": sample["sat"].astype("f8") + 1, "pv": sample["pv"], "time": sample["time"]}


def odd(sample):
    return bool((sample["time"] // 300_000_000_000) % 2)


def test_functions_see_masks_and_extras_and_may_leave_them_out() -> None:
    sat, pv = satellite(), power()
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(sat, time=2, y=4, x=4, mask=True),
            "pv": sb.Window(pv, time=1, site=sb.HERE),
        },
        sites=places(),
        samples=128,
        sequences=4,
        include=("time", "site"),
        transform=everything,
        reject=odd,
    )
    with sb.SuperbatchDataset(source, 16, replays=1, batches_per_epoch=12, timeout=60) as dataset:
        for batch in dataset:
            assert set(batch) == {"sat", "pv", "time"}
            assert (batch["time"] // 300_000_000_000 % 2 == 0).all()
            for row, t0 in enumerate(batch["time"].tolist()):
                part = sat.sel(time=slow.when(t0)).values.astype("f8") + 1
                assert np.isin(batch["sat"][row, 0].numpy(), part).all()
        assert dataset.stats().rejected > 0


def test_all_sites_with_their_names() -> None:
    pv = power().fillna(0).assign_coords(capacity=("site", np.arange(SITES + 5.0)))
    source = sb.ArchiveSource(
        {"pv": sb.Window(pv, time=3, site=sb.HERE)},
        sites="all",
        samples=32,
        sequences=2,
        include=("time", "site", "capacity"),
    )
    with sb.SuperbatchDataset(source, 8, replays=1, batches_per_epoch=4, timeout=60) as dataset:
        for batch in dataset:
            assert tuple(batch["pv"].shape) == (8, SITES + 5, 3)
            assert tuple(batch["capacity"].shape) == (8, SITES + 5)
            for row, names in enumerate(batch["site"]):
                assert sorted(names) == sorted(pv.site.values)
                t0 = slow.when(batch["time"][row][0])
                expected = pv.sel(site=names, time=slice(t0, t0 + 60 * MINUTE)).T
                assert np.array_equal(batch["pv"][row], expected.values)
                assert np.array_equal(batch["capacity"][row], expected.capacity.values)


# -- what is drawn, without loaders ----------------------------------------------------------------


def test_periods_share_nothing_on_any_time_axis(stored) -> None:
    cut = FIRST + 15 * HOUR
    for period, low, high in (
        (slice(None, cut - MINUTE), FIRST, cut),
        (slice(cut, None), cut, FIRST + 99 * HOUR),
    ):
        source = sb.ArchiveSource(
            windows(stored),
            sites=places(),
            samples=400,
            sequences=6,
            valid=[period],
            include=("time", "nwp_time"),
        )
        got = slow.samples(source)
        pv = stored["pv"].load()
        first = pv.time.values[[slow.latest(pv.time.values, slow.when(t)) for t in got["time"]]]
        for begin, end in (
            (slow.when(got["time"].min()) - 15 * MINUTE, slow.when(got["time"].max()) + 5 * MINUTE),
            (slow.when(got["nwp_time"].min()), slow.when(got["nwp_time"].max())),
            (first.min() - HOUR, first.max() + HOUR),
        ):
            assert low <= begin
            assert end < high


def test_weights_by_time_go_with_gaps_of_sites(stored) -> None:
    hour = (stored["sat"].time.values - FIRST) // HOUR
    weights = np.where(hour < 16, 1.0, 4.0)
    source = sb.ArchiveSource(
        windows(stored),
        sites=places(),
        samples=6000,
        sequences=200,
        weights=weights,
        include=INCLUDE,
    )
    got = slow.samples(source)
    names = np.array(sorted(places().site.values))
    drawn = list(zip(got["time"].tolist(), names[got["site"]].tolist(), strict=True))
    expected = everything_there(stored)
    assert set(drawn) <= expected
    late = FIRST.astype("i8") + 16 * HOUR.astype("i8")
    share = np.mean([t >= late for t, _ in drawn])
    heavy = 4 * sum(t >= late for t, _ in expected)
    light = sum(t < late for t, _ in expected)
    assert abs(share - heavy / (heavy + light)) < 0.04


@pytest.mark.parametrize("order", [("y", "x"), ("x", "y")])
def test_the_order_in_which_extents_are_written_does_not_matter(order) -> None:
    pyproj = pytest.importorskip("pyproj")
    lat, lon = np.array([52.1, 53.4, 51.7]), np.array([-1.2, -2.1, 0.3])
    change = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:27700", always_xy=True)
    east, north = change.transform(lon, lat)
    y, x = np.arange(1e5, 5e5, 4000.0), np.arange(3e5, 6.5e5, 4000.0)
    grid = numbered({"time": stamps(4, 5), "y": y, "x": x})
    where = xr.Dataset(
        {"y": ("site", lat), "x": ("site", lon)}, {"site": [3, 1, 2]}, attrs={"crs": "EPSG:4326"}
    )
    window = sb.Window(grid, time=1, crs="EPSG:27700", **dict.fromkeys(order, 4))
    got = slow.samples(sb.ArchiveSource({"g": window}, sites=where, samples=30, include="site"))
    for row in range(30):
        k = [3, 1, 2].index(got["site"][row])
        box = slow.pixels(slow.pixels(grid[:1], {"y": north[k]}, 4), {"x": east[k]}, 4)
        assert np.array_equal(got["g"][row] % (len(y) * len(x)), box.values)

    # the same without sites: pixels of a grid in degrees
    degrees = numbered(
        {"time": stamps(4, 5), "lat": np.arange(51.5, 53, 0.1), "lon": np.arange(-2, 0, 0.1)}
    )
    reference = sb.Window(degrees, time=1, lon=1, lat=1, crs="EPSG:4326")
    source = sb.ArchiveSource({"a": reference, "g": window}, samples=100, include=("lat", "lon"))
    got = slow.samples(source)
    for row in range(100):
        x0, y0 = change.transform(got["lon"][row], got["lat"][row])
        box = slow.pixels(slow.pixels(grid[:1], {"y": y0}, 4), {"x": x0}, 4)
        assert np.array_equal(got["g"][row] % (len(y) * len(x)), box.values)


def test_over_the_edge_of_the_reference_itself() -> None:
    sat = satellite(200).isel(time=slice(0, 20))
    window = sb.Window(sat, time=2, y=8, x=6, edge="fill", nan=-1, mask=True)
    source = sb.ArchiveSource(
        {"sat": window}, samples=2000, sequences=8, include=("time", "y", "x")
    )
    got = slow.samples(source)
    assert len(set(zip(got["y"].tolist(), got["x"].tolist(), strict=True))) > 900
    padded = np.pad(sat.values, [(0, 0), (4, 4), (4, 4)], constant_values=-1)
    for row in range(2000):
        t = slow.latest(sat.time.values, slow.when(got["time"][row]))
        y = int(np.flatnonzero(sat.y.values == got["y"][row])[0])
        x = int(np.flatnonzero(sat.x.values == got["x"][row])[0])
        expected = padded[t : t + 2, y : y + 8, x + 1 : x + 7]
        assert np.array_equal(got["sat"][row], expected)
        assert np.array_equal(got["sat_mask"][row], expected >= 0)


def test_a_forecast_over_its_edge_with_differences() -> None:
    nwp = forecasts(6)
    where = xr.Dataset({"y": ("site", [1500.0, 5400.0]), "x": ("site", [4050.0, 0.0])})
    where = where.assign_coords(site=["a", "b"])
    source = sb.ArchiveSource(
        {
            "pv": sb.Window(numbered({"time": stamps(120, 5)}), time=1),
            "nwp": sb.Forecast(
                nwp, time=slice("0h", "1h"), accumulated=["rad"], y=5, x=4, edge="fill", mask=True
            ),
        },
        sites=where,
        samples=200,
        include=("site", "nwp_run", "nwp_time"),
    )
    got = slow.samples(source)
    values = nwp.values.copy()
    values[1, :, 1:] = np.diff(nwp.values[1], axis=1)
    padded = np.pad(values, [(0, 0)] * 3 + [(4, 4)] * 2, constant_values=np.nan)
    corners = {0: (0, 14), 1: (13, 0)}  # nearest pixels: 0 is half-way, to the lower
    for row in range(200):
        y, x = corners[int(got["site"][row])]
        x = 0 if x == 0 else x
        for k in range(2):
            run = int(np.flatnonzero(nwp.init_time.values == slow.when(got["nwp_run"][row][k]))[0])
            step = int((got["nwp_time"][row][k] - got["nwp_run"][row][k]) // HOUR.astype("i8"))
            expected = padded[:, run, step, y + 2 : y + 7, x + 2 : x + 6]
            assert np.array_equal(got["nwp"][row][:, k], expected, equal_nan=True)
            assert np.array_equal(got["nwp_mask"][row][:, k], ~np.isnan(expected))


def test_a_difference_over_a_longer_step_is_never_taken() -> None:
    steps = np.r_[0:5, 7:14:3]
    nwp = numbered({"init_time": stamps(3, 24 * 60), "step": steps})
    sat = numbered({"time": stamps(12 * 40, 5)})
    for accumulated, expected in ((False, {0, 1, 2, 3, 4, 7, 10, 13}), (True, {0, 1, 2, 3, 4})):
        source = sb.ArchiveSource(
            {
                "sat": sb.Window(sat, time=1),
                "nwp": sb.Forecast(nwp, time=slice("0h", "0h"), accumulated=accumulated),
            },
            samples=3000,
            include=("nwp_run", "nwp_time"),
        )
        got = slow.samples(source)
        lead = (got["nwp_time"] - got["nwp_run"])[:, 0] // HOUR.astype("i8")
        assert set(lead.tolist()) == expected
        assert ("nwp: no step before" in source.describe()["ruled_out"]["time"]) == accumulated


def test_dropouts_of_two_modalities_are_independent() -> None:
    sat = satellite()
    source = sb.ArchiveSource(
        {name: sb.Window(sat, time=1, mask=True, dropout=0.5) for name in ("a", "b")}, samples=8000
    )
    got = slow.samples(source)
    a, b = (~got[f"{name}_mask"].any(axis=(1, 2, 3)) for name in ("a", "b"))
    both = np.bincount(2 * a.astype(int) + b, minlength=4) / len(a)
    assert np.allclose(both, 0.25, atol=0.03)
    for row in range(50):
        assert a[row] == (got["a"][row] == 0).all()


def test_several_arrays_by_site_in_orders_and_names_of_their_own() -> None:
    ids = np.array([40, 7, 19, 3])
    one = numbered({"time": stamps(50, 30), "site": ids}, "f8")
    two = numbered({"plant": ids[::-1].astype("f8"), "t": stamps(60, 60)}, "f8").copy()
    two[1, 4:9] = np.nan  # of site 19
    two[3, :] = np.nan  # site 40 has none at all
    source = sb.ArchiveSource(
        {
            "one": sb.Window(one, time=2, site=sb.HERE),
            "two": sb.Window(two, t=slice("-1h", "0h"), plant=sb.HERE),
        },
        sites=xr.Dataset(coords={"site": [3, 19, 40, 7, 555]}),
        samples=4000,
        include=("time", "site"),
    )
    got = slow.samples(source)
    assert set(got["site"].tolist()) == {3, 19, 7}
    for row in range(0, 4000, 3):
        t0, site = slow.when(got["time"][row]), int(got["site"][row])
        expected = one.sel(site=site, time=slice(t0, t0 + 30 * MINUTE))
        assert np.array_equal(got["one"][row], expected.values)
        line = slow.series(two.sel(plant=site), "t", t0, "-1h", "0h")
        assert np.array_equal(got["two"][row], line.values)
    said = source.describe()
    assert said["ruled_out"]["site"] == {"one: no such site": 1, "two: no such site": 0}
    worst = said["when"]["pairs"]["two: NaN"]
    assert worst[0].startswith("site 40: 2021-03-01T01:00")
    assert worst[1].startswith("site 19: 2021-03-01T04:00")
    assert worst[1].endswith("T09:30 (12)")
    assert said["ruled_out"]["pairs"] == {"two: NaN": 48 + 12}
    assert len(worst) == 2


def test_a_month_is_as_long_as_it_is() -> None:
    days = np.datetime64("2001-01-01", "ns") + np.arange(700) * np.timedelta64(24, "h")
    months = np.unique(days.astype("M8[M]")).astype("M8[ns]")
    source = sb.ArchiveSource(
        {
            "day": sb.Window(numbered({"time": days}, "i4"), time=1),
            "month": sb.Window(numbered({"month": months}, "i4"), month=2),
        },
        samples=4000,
    )
    got = slow.samples(source)
    wanted = np.searchsorted(months, days[got["day"][:, 0]], side="right") - 1
    assert np.array_equal(got["month"][:, 0], wanted)
    assert len(set(got["day"][:, 0].tolist())) > 650


@pytest.mark.parametrize(
    ("where", "site", "message"),
    [
        (places().rename(x="lon", y="lat"), None, "does not place 'sat'"),
        (places(4).assign_coords(site=[1, 2, 3, 4]), sb.HERE, "make both the same"),
        (places(4), 2, "write site=sb.HERE"),
    ],
)
def test_sites_that_would_place_nothing_are_refused(where, site, message) -> None:
    extents = {} if site is None else {"site": site}
    made = {
        "sat": sb.Window(satellite(), time=1, y=2, x=2),
        "pv": sb.Window(power(), time=1, **extents),
    }
    if site == 2:
        made = dict(reversed(made.items()))
    with pytest.raises(ArgumentError, match=message) as caught:
        sb.ArchiveSource(made, sites=where)
    assert "\n" not in str(caught.value)


def test_names_and_projections_that_do_not_go_together() -> None:
    sat, pv = satellite(), power()
    with pytest.raises(ArgumentError, match="is the name of a mask too"):
        sb.ArchiveSource({"a": sb.Window(sat, time=1, mask=True), "a_mask": sb.Window(pv, time=1)})
    windows = {"sat": sb.Window(sat, time=1, y=2, x=2, crs="EPSG:27700")}
    with pytest.raises(ArgumentError, match="of one side only"):
        sb.ArchiveSource(windows, sites=places())
