"""The right values, out of every kind of store and shape, through real loaders.

Unless said otherwise a test serves one epoch of ``coverage="once"`` and expects every window there is
exactly once, each of them proven by its own values.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import superbatch as sb
from superbatch.slots import Layout, PrivateSlots
from superbatch.source import Settings
from tests.fields import corners, field, write, write_plain
from tests.processes import ROOT

OCF = ROOT.parent / "shared" / "data" / "ocf"


def every_window(whole, window):
    """The corners of all windows, from the definition."""
    lengths = [n - w + 1 for n, w in zip(whole.shape, window, strict=True)]
    return sorted(itertools.product(*map(range, lengths)))


def serve(source, batch_size=16, **options):
    options = {"replays": 1, "timeout": 60.0} | options
    with sb.SuperbatchDataset(source, batch_size, **options) as dataset:
        return list(dataset)


def assert_all_once(batches, whole, window, name="field"):
    at = np.concatenate([corners(batch[name], whole) for batch in batches])
    assert all(batch[name].shape[1:] == tuple(window) for batch in batches)
    assert sorted(map(tuple, at.tolist())) == every_window(whole, window)


# -- shapes -------------------------------------------------------------------------------------

SHAPES = {
    "1-d, windows across chunks": {"shape": (103,), "chunks": (10,), "window": (7,)},
    "2-d, both split, last chunks short, v2": {
        "shape": (40, 31),
        "chunks": (6, 7),
        "window": (4, 9),
        "zarr_format": 2,
    },
    "2-d, second dimension whole": {"shape": (50, 6), "chunks": (8, 2), "window": (3, None)},
    "2-d, first dimension whole": {"shape": (5, 60), "chunks": (2, 9), "window": (None, 4)},
    "3-d, sharded": {
        "shape": (23, 20, 17),
        "chunks": (2, 5, 5),
        "shards": (8, 10, 10),
        "window": (3, 8, 8),
    },
    "4-d": {"shape": (7, 6, 9, 8), "chunks": (4, 2, 5, 3), "window": (2, 3, 4, 6)},
    "window larger than a chunk and than a sequence": {
        "shape": (61,),
        "chunks": (4,),
        "window": (19,),
        "options": {"chunks_per_sequence": 2},
    },
    "shorter than one sequence, shorter than one chunk": {
        "shape": (9, 5),
        "chunks": (16, 5),
        "window": (4, None),
    },
    "exactly one window": {"shape": (12, 4), "chunks": (5, 2), "window": (12, 4)},
    "sequences of chunks along two dimensions": {
        "shape": (33, 29),
        "chunks": (4, 4),
        "window": (5, 3),
        "options": {"chunks_per_sequence": {"d0": 2, "d1": 3}},
    },
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_window_is_served_as_it_is_stored(tmp_path, name):
    case = {"options": {}, "shards": None, "zarr_format": 3} | SHAPES[name]
    whole = field(case["shape"])
    dims = [f"d{i}" for i in range(whole.ndim)]
    made = write(
        tmp_path / "store.zarr",
        whole,
        dims=dims,
        chunks=case["chunks"],
        shards=case["shards"],
        zarr_format=case["zarr_format"],
    )
    window = {d: n for d, n in zip(dims, case["window"], strict=True) if n is not None}
    full = [w or n for w, n in zip(case["window"], whole.shape, strict=True)]
    source = sb.ArchiveSource(
        {"field": sb.Window(made.field, **window)},
        samples=256,
        sequences=8,
        coverage="once",
        **case["options"],
    )
    assert source.describe()["windows"] == len(every_window(whole, full))
    assert_all_once(serve(source), whole, full)


def fill(source, threads=1):
    """One epoch of ``coverage="once"``, filled in this process."""
    feed = source.bind(Settings(8, 0, 0, 1, True, 1, threads))
    slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
    filler = feed.open()
    try:
        for index in range(feed.superbatches(0)):
            filled = filler.start(0, index, slot).finish()
            yield {name: values[: filled.samples].copy() for name, values in slot.items()}
    finally:
        filler.close()


def test_a_filler_that_is_closed_leaves_no_event_loop() -> None:
    """Each one polls: sixty of them take a core."""
    loops = [thread for thread in threading.enumerate() if thread.name == "IO loop"]
    field = xr.DataArray(np.arange(40.0).reshape(10, 4), dims=("t", "x")).chunk({"t": 2})
    windows = {"field": sb.Window(field, t=2)}
    assert len(list(fill(sb.ArchiveSource(windows, samples=8, sequences=2, coverage="once")))) >= 1
    assert [thread for thread in threading.enumerate() if thread.name == "IO loop"] == loops


@st.composite
def grids(draw):
    ndim = draw(st.integers(1, 3))
    sizes = st.integers(1, {1: 40, 2: 14, 3: 7}[ndim])
    shape = [draw(sizes) for _ in range(ndim)]
    chunks = [draw(st.integers(1, n + 2)) for n in shape]
    shards = None
    if draw(st.booleans()):
        shards = [c * draw(st.integers(1, 3)) for c in chunks]
    window = [draw(st.integers(1, n)) for n in shape]
    whole = [draw(st.booleans()) for _ in shape]
    if all(whole):
        whole[draw(st.integers(0, ndim - 1))] = False
    window = [n if w else size for n, w, size in zip(shape, whole, window, strict=True)]
    return {
        "shape": shape,
        "chunks": chunks,
        "shards": shards,
        "window": window,
        "whole": whole,
        "per": draw(st.integers(1, 4)),
        "sequences": draw(st.integers(1, 6)),
        "zarr_format": 3 if shards else draw(st.sampled_from([2, 3])),
    }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(grid=grids())
def test_any_grid_serves_every_window_as_it_is_stored(tmp_path_factory, grid):
    whole = field(grid["shape"])
    names = [f"d{i}" for i in range(whole.ndim)]
    options = {"dimension_names": names}
    if grid["zarr_format"] == 2:
        options = {"attributes": {"_ARRAY_DIMENSIONS": names}}
    stored = write_plain(
        tmp_path_factory.mktemp("grid") / "field.zarr",
        whole,
        chunks=grid["chunks"],
        shards=grid["shards"] and tuple(grid["shards"]),
        zarr_format=grid["zarr_format"],
        **options,
    )
    extents = {d: n for d, n, w in zip(names, grid["window"], grid["whole"], strict=True) if not w}
    source = sb.ArchiveSource(
        {"field": sb.Window(stored, **extents)},
        samples=64,
        sequences=grid["sequences"],
        chunks_per_sequence=grid["per"],
        coverage="once",
    )
    assert_all_once(list(fill(source)), whole, grid["window"])


# -- several arrays -----------------------------------------------------------------------------


def test_several_arrays_of_one_grid_are_one_sample(tmp_path):
    # Different chunks, different windows, one window twice; along time windows begin at the anchor,
    # along x they are centred on it. Two arrays have no windowed dimension: they are always the same.
    shape, times = (40, 30), xr.date_range("2024-01-01", periods=40, freq="h")
    coords = {"time": times, "x": np.arange(30) * 2.0}
    fine = write(
        tmp_path / "fine.zarr", field(shape), dims=("time", "x"), chunks=(5, 30), coords=coords
    )
    wide = write(
        tmp_path / "wide.zarr",
        field(shape, "float64") + 0.5,
        dims=("time", "x"),
        chunks=(40, 7),
        coords=coords,
        zarr_format=2,
    )
    line = write(
        tmp_path / "line.zarr",
        field((40,), "int16"),
        dims=("time",),
        chunks=(11,),
        coords={"time": times},
    )
    height = field((4, 3), "float32")
    mask = write_plain(tmp_path / "mask.zarr", np.array([True, False, True]), chunks=(2,))
    source = sb.ArchiveSource(
        {
            "fine": sb.Window(fine.field, time=4, x=5),
            "wide": sb.Window(wide.field, time=7, x=2),
            "again": sb.Window(fine.field, time=slice("-2h", "0h"), x=1),
            "line": sb.Window(line.field, time=1),
            "height": sb.Window(xr.DataArray(height, dims=("a", "b"))),
            "mask": sb.Window(mask),
        },
        samples=128,
        sequences=6,
        coverage="once",
    )
    batches = serve(source)
    anchors = []
    for batch in batches:
        fine_at = corners(batch["fine"], field(shape))
        wide_at = corners((batch["wide"] - 0.5).numpy(), field(shape, "float64"))
        again_at = corners(batch["again"], field(shape))
        line_at = corners(batch["line"], field((40,), "int16"))
        anchor = fine_at + np.array([0, 2])
        np.testing.assert_array_equal(wide_at, anchor - [0, 1])
        np.testing.assert_array_equal(again_at, anchor - [2, 0])
        np.testing.assert_array_equal(line_at, anchor[:, :1])
        assert (batch["height"].numpy() == height).all()
        assert batch["mask"].numpy().tolist() == [[True, False, True]] * len(anchor)
        anchors += map(tuple, anchor.tolist())
    # Time: from 2 hours after the beginning to 7 positions before the end. x: 2 from either end.
    assert sorted(anchors) == sorted(itertools.product(range(2, 34), range(2, 28)))


# -- kinds of store -----------------------------------------------------------------------------

WHOLE = field((60, 12))


def stores(folder: Path):
    """The same array, through every way to open it."""
    import obstore.store

    path = folder / "store.zarr"
    made = write(path, WHOLE, dims=("time", "x"), chunks=(7, 5))
    yield "xarray", made.field
    yield "xarray, Dask chunks", xr.open_zarr(path, chunks={"time": 14}, consolidated=False).field
    yield "zarr", zarr.open_group(path, mode="r")["field"]
    files = zarr.storage.FsspecStore.from_url(f"file://{path}", read_only=True)
    yield "fsspec", zarr.open_group(files, mode="r")["field"]
    local = zarr.storage.ObjectStore(obstore.store.LocalStore(str(path)), read_only=True)
    yield "obstore", xr.open_zarr(local, chunks=None, consolidated=False).field
    zipped = shutil.make_archive(str(folder / "store"), "zip", path)
    stored = zarr.storage.ZipStore(zipped, read_only=True)
    yield "zip", zarr.open_group(stored, mode="r")["field"]
    yield "memory", made.field.load()


def test_every_kind_of_store_gives_the_same(tmp_path):
    # All at once, as modalities of one sample: one loader opens them all.
    arrays = dict(stores(tmp_path))
    windows = {}
    for name, array in arrays.items():
        named = isinstance(array, xr.DataArray) or array.metadata.dimension_names[0] == "time"
        assert named, name
        windows[name] = sb.Window(array, time=4, x=3)
    batches = serve(sb.ArchiveSource(windows, samples=128, sequences=4, coverage="once"), threads=2)
    for name in arrays:
        assert_all_once(batches, WHOLE, (4, 3), name)


# -- real data ----------------------------------------------------------------------------------


@pytest.mark.skipif(not OCF.is_dir(), reason="the folder with real stores is not here")
def test_a_real_satellite_archive_gives_what_xarray_reads():
    opened = xr.open_zarr(OCF / "satellite.zarr", chunks=None)
    data = opened["data"]
    known = data.values
    # The place of each pixel, as a modality of its own, says where the window was cut.
    at = xr.DataArray(field(known.shape[:3]), dims=("time", "y", "x"), coords={"time": opened.time})
    source = sb.ArchiveSource(
        {
            "sat": sb.Window(data, time=slice("-10min", "10min"), y=32, x=48),
            "at": sb.Window(at, time=1, y=1, x=1),
        },
        samples=256,
        sequences=8,
        chunks_per_sequence=1,
    )
    with sb.SuperbatchDataset(source, 32, replays=1, seed=11) as dataset:
        batches = list(itertools.islice(dataset, 16))
    seen = set()
    for batch in batches:
        assert batch["sat"].shape == (32, 5, 32, 48, 1)
        places = np.stack(np.unravel_index(batch["at"].numpy().reshape(-1), known.shape[:3]), -1)
        for window, (t, y, x) in zip(batch["sat"].numpy(), places.tolist(), strict=True):
            expected = known[t - 2 : t + 3, y - 16 : y + 16, x - 24 : x + 24]
            np.testing.assert_array_equal(window, expected)
            seen.add((t, y, x))
    assert len(seen) > 400
    assert {t for t, _, _ in seen} == set(range(2, 23))


@pytest.mark.skipif(not OCF.is_dir(), reason="the folder with real stores is not here")
def test_a_real_forecast_archive_gives_what_xarray_reads():
    data = xr.open_zarr(OCF / "nwp.zarr", chunks=None)["UKV"].isel(variable=0)
    known = data.values
    shape = (known.shape[0], *known.shape[2:])
    coords = {dim: data[dim] for dim in ("init_time", "y", "x")}
    at = xr.DataArray(field(shape), dims=("init_time", "y", "x"), coords=coords)
    source = sb.ArchiveSource(
        {
            "nwp": sb.Window(data, init_time=2, y=40, x=40),
            "at": sb.Window(at, init_time=1, y=1, x=1),
        },
        samples=64,
        sequences=4,
        chunks_per_sequence=1,
    )
    with sb.SuperbatchDataset(source, 16, replays=1) as dataset:
        batches = list(itertools.islice(dataset, 8))
    for batch in batches:
        places = np.stack(np.unravel_index(batch["at"].numpy().reshape(-1), shape), -1)
        for window, (i, y, x) in zip(batch["nwp"].numpy(), places.tolist(), strict=True):
            expected = known[i : i + 2, :, y - 20 : y + 20, x - 20 : x + 20]
            np.testing.assert_array_equal(window, expected)


# -- S3 -----------------------------------------------------------------------------------------

SERVER = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the test closes it
server.stop()
"""


@pytest.fixture(scope="module")
def s3():
    """A local S3 server that checks credentials, a user of it, and a way to take the user's key away."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        admin = {
            "endpoint_url": address,
            "region_name": "us-east-1",
            "aws_access_key_id": "setup",
            "aws_secret_access_key": "setup",
        }
        iam = boto3.client("iam", **admin)
        iam.create_user(UserName="trainer")
        policy = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
        }
        iam.put_user_policy(UserName="trainer", PolicyName="all", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName="trainer")["AccessKey"]
        boto3.client("s3", **admin).create_bucket(Bucket="archive")
        # From now on the server wants to know who asks.
        enable = urllib.request.Request(
            f"{address}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(enable, timeout=10).close()

        def options(secret=None):
            return {
                "key": key["AccessKeyId"],
                "secret": secret or key["SecretAccessKey"],
                "client_kwargs": {"region_name": "us-east-1"},
                "endpoint_url": address,
                "config_kwargs": {"retries": {"max_attempts": 1}},
            }

        def revoke():
            keys = dict(
                admin,
                aws_access_key_id=key["AccessKeyId"],
                aws_secret_access_key=key["SecretAccessKey"],
            )
            boto3.client("iam", **keys).delete_access_key(
                UserName="trainer", AccessKeyId=key["AccessKeyId"]
            )

        yield options, revoke
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_s3_with_right_and_with_wrong_credentials(s3):
    options, revoke = s3
    xr.Dataset({"field": (("time", "x"), WHOLE)}).to_zarr(
        "s3://archive/field.zarr",
        storage_options=options(),
        encoding={"field": {"chunks": (10, 12), "fill_value": 0}},
        consolidated=False,
    )
    opened = xr.open_zarr(
        "s3://archive/field.zarr", storage_options=options(), chunks=None, consolidated=False
    )
    window = {"field": sb.Window(opened.field, time=4)}
    source = sb.ArchiveSource(window, samples=32, sequences=2, coverage="once")
    assert_all_once(serve(source), WHOLE, (4, 12))
    with pytest.raises(Exception, match=r"(?i)forbidden|signature|denied|InvalidAccessKey"):
        xr.open_zarr("s3://archive/field.zarr", storage_options=options("wrong"), chunks=None)
    # The key is taken away after the archive was opened: the loader's reads are refused.
    revoke()
    with pytest.raises(PermissionError) as caught:
        serve(source)
    assert type(caught.value) is PermissionError
    text = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "does not exist" in text or "Forbidden" in text or "Denied" in text, text
    assert options()["secret"] not in text
