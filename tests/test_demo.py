"""The demo: its store, its split, its errors, and the whole of it on several kinds of arrays."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import iris_sample_data
import numpy as np
import numpy.typing as npt
import pytest
import torch
import xarray as xr
import zarr

from superbatch.cli import main
from superbatch.demo import climate
from superbatch.demo.main import source_of
from superbatch.demo.network import Learner, ToPlanes
from superbatch.demo.own import open_array, own_task, parse_window
from superbatch.demo.task import Task, count, cut, heldout_windows, starts
from superbatch.errors import ArgumentError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def task(folder: Path) -> Task:
    return climate.climate_task(folder)


def coordinates(shape: tuple[int, ...], dtype: str = "float32") -> npt.NDArray[Any]:
    """A field whose values are its own flat positions."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


# -- the climate store -------------------------------------------------------------------------


def test_the_store_holds_both_scenarios_as_netcdf_has_them(task: Task) -> None:
    stored = climate.open_store(Path(task.where))
    for position, scenario in enumerate(["E1", "A1B"]):
        path = Path(iris_sample_data.path) / f"{scenario}_north_america.nc"
        with xr.open_dataset(path) as dataset:
            field = dataset["air_temperature"]
            np.testing.assert_array_equal(stored[position].values, field.values)
            for dim in ("time", "latitude", "longitude"):
                np.testing.assert_array_equal(stored[dim].values, dataset[dim].values)
    assert stored["time"].dt.calendar == "360_day"
    assert stored.encoding["chunks"] == tuple(climate.CHUNKS[str(d)] for d in stored.dims)


def test_the_store_is_written_once(task: Task) -> None:
    path = Path(task.where)
    files = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    climate.write_store(path)
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == files


def test_processes_that_write_the_store_at_once_leave_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "made" / "north_america.zarr"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=climate.write_store, args=(path,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert os.listdir(path.parent) == [path.name]
    assert not np.isnan(climate.open_store(path).values).any()


def test_nothing_is_left_where_the_store_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "north_america.zarr"
    code = (
        "import sys; sys.modules['iris_sample_data'] = None\n"
        "from superbatch.cli import main\n"
        f"sys.exit(main(['demo', '--dir', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'superbatch[demo]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not path.exists()
    assert not os.listdir(tmp_path)


def test_no_year_is_both_trained_on_and_held_out(task: Task) -> None:
    assert task.heldout is not None
    trained = {t.year for t in task.train["time"].values}
    heldout = {t.year for t in task.heldout["time"].values}
    assert trained == set(range(1860, 2050))
    assert heldout == set(range(2050, 2100))
    # with eleven years in a window, a part of n years has n - 10 for each scenario
    assert count(task.train, task.window) == 2 * (190 - 10)
    assert count(task.heldout, task.window) == 2 * (50 - 10)


def test_two_slots_fit_in_the_shared_memory_of_a_container(task: Task) -> None:
    assert 2 * source_of(task, 32).samples * task.sample_bytes <= 64e6


# -- windows that the network is judged on --------------------------------------------------------


def test_all_heldout_windows_are_read_where_they_are_few(task: Task) -> None:
    assert task.heldout is not None
    field = task.heldout.values
    expected = [field[s : s + 1, t : t + 11] for s in range(2) for t in range(40)]
    np.testing.assert_array_equal(heldout_windows(task), expected)


def test_heldout_windows_are_drawn_where_they_are_many() -> None:
    array = xr.DataArray(coordinates((60, 50)), dims=("y", "x"))
    whole = Task("", "", array, array, {"y": 4, "x": 5}, None, (), "", {"y": 60, "x": 50})
    windows = heldout_windows(whole, most=100)
    assert windows is not None
    corners = windows[:, 0, 0].astype(int)
    assert 90 <= len(corners) == len(set(corners)) <= 100
    for window, corner in zip(windows, corners, strict=True):
        y, x = divmod(corner, 50)
        np.testing.assert_array_equal(window, array.values[y : y + 4, x : x + 5])


def test_starts_and_cut_agree_with_slices() -> None:
    array = xr.DataArray(coordinates((5, 4, 3)), dims=("a", "b", "c"))
    window = {"a": 2, "b": 4, "c": 1}
    assert count(array, window) == 4 * 1 * 3
    for a, b, c in itertools.product(*starts(array, window)):
        expected = array.values[a : a + 2, b : b + 4, c : c + 1]
        np.testing.assert_array_equal(cut(array, window, (a, b, c)), expected)


# -- the network ----------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [0, 1, 2, 3])
def test_planes_take_the_last_step_as_target(time: int) -> None:
    shape = (3, 4, 5, 6)
    batch = torch.from_numpy(coordinates((2, *shape)))
    planes = ToPlanes(shape, time)(batch)
    steps = batch.movedim(1 + time, 1)
    assert sorted(planes.target.flatten().tolist()) == sorted(steps[:, -1].flatten().tolist())
    assert torch.equal(planes.guess.flatten().sort().values, steps[:, -2].flatten().sort().values)
    # the longest two of the other dimensions are the image
    others = [n for axis, n in enumerate(shape) if axis != time]
    assert planes.target.shape[1:] == tuple(others)
    assert planes.inputs.shape[1] == (shape[time] - 1) * others[0]
    assert torch.equal(planes.target, steps[:, -1])


@pytest.mark.parametrize(
    ("shape", "time"),
    [
        *itertools.product([(7,), (7, 1), (3, 7), (2, 3, 7), (2, 2, 2, 2)], [None, 0]),
        ((1, 1, 1, 1), None),
    ],
)
def test_samples_of_any_dimensions_can_be_learned(shape: tuple[int, ...], time: int | None) -> None:
    torch.manual_seed(0)
    learner = Learner(shape, time)
    batch = torch.randn(4, *shape)
    learner.fit_scale(batch)
    learner.loss(batch).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learner.parameters())


def test_errors_are_root_mean_squares_in_the_unit_of_the_data() -> None:
    rng = np.random.default_rng(0)
    batch = (280 + 5 * rng.standard_normal((16, 1, 4, 6, 5))).astype("float32")
    learner = Learner(batch.shape[1:], 1)
    learner.fit_scale(torch.from_numpy(batch))
    errors = learner.errors([torch.from_numpy(batch[:10]), torch.from_numpy(batch[10:])])
    target, before = batch[:, 0, -1], batch[:, 0, :-1]
    persistence = np.sqrt(np.mean((target - before[:, -1]) ** 2))
    mean = np.sqrt(np.mean((target - before.mean(1)) ** 2))
    # the last layer starts at zero, so an untrained network is persistence
    assert errors["network"] == pytest.approx(persistence, rel=1e-5)
    assert errors["persistence"] == pytest.approx(persistence, rel=1e-5)
    assert errors["the mean of the 3 before"] == pytest.approx(mean, rel=1e-5)


def test_missing_values_count_for_nothing() -> None:
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((8, 3, 6, 5)).astype("float32")
    batch[:, :, :, 2] = np.nan
    batch[0, -1, 1, 1] = np.nan
    learner = Learner(batch.shape[1:], 0)
    learner.fit_scale(torch.from_numpy(batch))
    assert learner.loss(torch.from_numpy(batch)).isfinite()
    errors = learner.errors([torch.from_numpy(batch)])
    expected = np.sqrt(np.nanmean((batch[:, -1] - batch[:, -2]) ** 2))
    assert errors["persistence"] == pytest.approx(expected, rel=1e-5)


# -- stores of the user ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A group with named and unnamed dimensions, several types, a nested array."""
    path = tmp_path_factory.mktemp("own") / "own.zarr"
    dataset = xr.Dataset(
        {
            "packed": (("time", "y", "x"), coordinates((40, 12, 10)) / 8),
            "wind": (("level", "x"), coordinates((6, 10))),
            "name": (("y", "x"), np.full((12, 10), "calm", dtype=object)),
        },
        {"time": np.datetime64("2025-01-01", "ns") + np.arange(40) * np.timedelta64(1, "h")},
    )
    encoding = {
        "packed": {
            "dtype": "int16",
            "scale_factor": 0.125,
            "_FillValue": -1,
            "chunks": (7, 12, 10),
        },
        "wind": {"chunks": (2, 10)},
    }
    dataset.to_zarr(path, zarr_format=2, encoding=encoding)
    group = zarr.open_group(path, mode="a", zarr_format=2)
    plain = group.create_array("deep/plain", shape=(20, 9, 8), chunks=(6, 9, 4), dtype="uint8")
    plain[:] = coordinates((20, 9, 8), "uint8")
    zarr.consolidate_metadata(path, zarr_format=2)
    return str(path)


@pytest.mark.parametrize(
    ("text", "extents"),
    [("time=12,y=64", {"time": 12, "y": 64}), (" x = 3 ", {"x": 3}), (None, {}), ("", {})],
)
def test_window_as_it_is_written(text: str | None, extents: dict[str, int]) -> None:
    assert parse_window(text) == extents


@pytest.mark.parametrize("text", ["time", "time=", "time=0", "time=-1", "t=1,t=2", "x=1,", "x=1.5"])
def test_a_window_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ArgumentError, match="write for example --window time=12,y=64,x=64"):
        parse_window(text)


def test_an_array_keeps_its_names_and_its_scale(store: str) -> None:
    array, chunks = open_array(store, "packed")
    assert chunks == {"time": 7, "y": 12, "x": 10}
    np.testing.assert_array_equal(array.values, coordinates((40, 12, 10)) / 8)
    assert array["time"].dtype.kind == "M"


def test_an_array_without_names_gets_some(store: str) -> None:
    array, chunks = open_array(store, "deep/plain")
    assert chunks == {"dim_0": 6, "dim_1": 9, "dim_2": 4}
    np.testing.assert_array_equal(array.values, coordinates((20, 9, 8), "uint8"))
    alone, _ = open_array(f"{store}/deep/plain", None)
    np.testing.assert_array_equal(alone.values, array.values)


@pytest.mark.parametrize(
    ("array", "window", "words"),
    [
        (None, "time=4", "holds 4 arrays: choose one with --array: deep/plain, name, packed, wind"),
        ("pakced", "time=4", "has no array 'pakced': choose one of deep/plain, name, packed, wind"),
        ("deep", "time=4", "has no array 'deep'"),
        ("name", "y=4", "needs numbers"),
        ("packed", "z=4", "does not have: choose of time (40), y (12), x (10)"),
        ("packed", "time=41", "write time=40 or less"),
        ("packed", None, "needs --window"),
    ],
)
def test_what_cannot_be_trained_on(
    store: str, array: str | None, window: str | None, words: str
) -> None:
    with pytest.raises(ArgumentError, match=re.escape(words)) as raised:
        own_task(store, array, window)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["missing", "file", "folder"])
def test_what_is_no_zarr_store(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    if kind == "file":
        path.write_text("no Zarr")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(ArgumentError, match="there is no Zarr store at"):
        own_task(str(path), "a", "x=1")


def test_the_end_of_time_is_held_out(store: str) -> None:
    task = own_task(store, "packed", "time=5,y=8,x=8")
    assert task.time == "time"
    assert task.heldout is not None
    assert (task.train.sizes["time"], task.heldout.sizes["time"]) == (35, 5)
    assert task.train["time"].values[-1] < task.heldout["time"].values[0]


def test_of_two_times_the_one_in_the_window_is_predicted(tmp_path: Path) -> None:
    array = xr.DataArray(coordinates((3, 6, 8)), dims=("time", "step", "x"), name="forecast")
    array.to_dataset().to_zarr(tmp_path / "forecast.zarr", zarr_format=2)
    assert own_task(str(tmp_path / "forecast.zarr"), None, "step=2,x=4").time == "step"
    assert own_task(str(tmp_path / "forecast.zarr"), None, "x=4").time == "time"


def test_nothing_is_held_out_where_two_windows_do_not_fit(store: str) -> None:
    task = own_task(store, "packed", "time=30")
    assert task.heldout is None
    assert task.train.sizes["time"] == 40
    assert heldout_windows(task) is None


# -- the whole demo -------------------------------------------------------------------------------


def numbers(text: str, name: str) -> list[float]:
    """The numbers on the line of the table that begins with a name."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    found = re.findall(r"[\d,]+\.?\d*", line.strip().removeprefix(name))
    return [float(number.replace(",", "")) for number in found]


def test_the_demo_is_better_than_persistence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--steps", "150", "--seconds", "40", "--compare", "1024"]
    assert main(["demo", "--dir", str(folder), *short]) == 0
    shown = capsys.readouterr().out
    network, persistence = numbers(shown, "network")[0], numbers(shown, "persistence")[0]
    # of the data alone: root mean square of the change from one year to the next, 2060 to 2099
    held = climate.open_store(folder / "north_america.zarr").sel(time=slice("2059", None)).values
    assert persistence == pytest.approx(np.sqrt(np.mean(np.diff(held, axis=1) ** 2)), abs=5e-4)
    assert network < 0.9 * persistence
    steps, *_ = numbers(shown, "steps")
    served, fresh, replayed = numbers(shown, "samples")[:3]
    assert served == fresh + replayed == 32 * steps
    for name in ("superbatch  ", "plain DataLoader, 0 workers", "plain DataLoader, 2 workers"):
        rate, _first, samples = numbers(shown, name)
        assert rate > 0
        assert samples == 1024
    picture = (folder / "demo.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(os.listdir(folder)) == ["demo.png", "north_america.zarr"]


@pytest.mark.parametrize(
    ("array", "window"),
    [("packed", "time=5,y=8,x=8"), ("wind", "level=2"), ("deep/plain", "dim_0=3,dim_2=8")],
)
def test_the_demo_on_a_store_of_the_user(
    store: str, array: str, window: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--store", store, "--array", array, "--window", window]
    short = ["--steps", "20", "--batch-size", "4", "--compare", "64", "--seconds", "30"]
    assert main(["demo", "--dir", str(tmp_path), *own, *short]) == 0
    shown = capsys.readouterr().out
    assert numbers(shown, "steps")[0] == 20
    assert numbers(shown, "superbatch  ")[2] == 64
    assert os.listdir(tmp_path) == ["demo.png"]


def test_the_progress_line(folder: Path) -> None:
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (40, 100))
    command = ["demo", "--dir", str(folder), "--steps", "60", "--seconds", "10", "--compare", "64"]
    process = subprocess.Popen(
        [sys.executable, "-m", "superbatch.cli", *command],
        stdout=subprocess.DEVNULL,
        stderr=there,
    )
    os.close(there)
    shown = b""
    try:
        while True:
            try:
                piece = os.read(here, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(here)
    line = re.compile(
        r"training +\d+%\|.*\| (\d+)/60 +([\d.]+)it/s, fresh ([\d,]+)/s, stall ([\d.]+)%, error ([\d.]+) K"
    )
    lines = [found for part in shown.decode().split("\r") if (found := line.search(part))]
    assert lines, shown.decode()[-2000:]
    done, speed, fresh, stall, error = lines[-1].groups()
    assert int(done) <= 60
    assert float(speed) > 0
    assert float(fresh.replace(",", "")) > 0
    assert 0 <= float(stall) <= 100
    assert 0.5 < float(error) < 1.5
