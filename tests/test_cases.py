"""Situations that users of other loaders have run into, each as it was reported.

The numbers are those of the list that the project keeps. Those that are missing here are tested where
they belong: two datasets, kept batches, and workers of a DataLoader in test_dataset.py; other forms of a store in
test_stores.py; a transform that misbehaves, and a script without a guard, in test_loader.py; killed loaders and
training processes in test_supervise.py; resuming in test_resume.py; ranks in test_ranks.py.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
import xarray as xr
import zarr

import superbatch as sb
from superbatch.errors import ArgumentError
from superbatch.slots import Layout, PrivateSlots
from superbatch.source import Settings
from tests.counting import CountingStore, reads
from tests.fields import corners, field, write, write_plain
from tests.processes import ROOT, run_script


def serve(source, count=None, batch_size=8, **options):
    options = {"replays": 1, "timeout": 60} | options
    with sb.SuperbatchDataset(source, batch_size, **options) as dataset:
        return list(dataset if count is None else itertools.islice(dataset, count))


def starts(batches, whole, name="field"):
    return np.concatenate([corners(batch[name], whole) for batch in batches])


@pytest.fixture
def stored(tmp_path):
    def make(shape=(100, 3), chunks=(10, 3), **options):
        whole = field(shape)
        names = ["time", "y", "x"][: len(shape)]
        path = tmp_path / f"{len(os.listdir(tmp_path))}.zarr"
        return whole, write_plain(path, whole, chunks=chunks, dimension_names=names, **options)

    return make


@pytest.mark.parametrize("pipeline", ["zarr", "zarrs"])
def test_1_the_training_process_has_read_from_the_store_before(tmp_path, pipeline):
    """Threads and locks of a codec pipeline would be copied by a fork; loaders are not forked."""
    if pipeline == "zarrs":
        pytest.importorskip("zarrs")
    whole = field((60, 5))
    write(tmp_path / "store.zarr", whole, dims=("time", "x"), chunks=(6, 5))
    code = f"""
import numpy as np, xarray as xr, zarr
zarrs = {pipeline == "zarrs"}
if zarrs:
    import zarrs
    zarr.config.set({{"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}})
opened = xr.open_zarr("store.zarr", chunks=None, consolidated=False)
before = opened.field.values  # the pipeline's threads run
import superbatch as sb
source = sb.ArchiveSource({{"field": sb.Window(opened.field, time=4)}}, samples=64, coverage="once")
for dataset in [sb.SuperbatchDataset(source, 8, replays=1, timeout=40) for _ in range(2)]:
    for batch in dataset:
        for window in batch["field"].numpy():
            at = window[0, 0] // 5
            assert (window == before[at : at + 4]).all()
    dataset.close()
    assert (opened.field[:7].values == before[:7]).all()
print("done")
"""
    done = run_script(tmp_path, code)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_4_few_descriptors_and_many_batches_that_are_kept(tmp_path):
    code = """
import os, resource
import numpy as np, xarray as xr, superbatch as sb
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
field = xr.DataArray(np.arange(600, dtype="int32").reshape(100, 6), dims=("time", "x"))
source = sb.ArchiveSource({"field": sb.Window(field, time=5)}, samples=64)
kept = []
with sb.SuperbatchDataset(source, 8, loaders=4, replays=1) as dataset:
    for batch in dataset:
        kept = [*kept[-299:], batch]
        if len(kept) == 1:
            at_first = len(os.listdir("/proc/self/fd"))
        if dataset.stats().iterations == 900:
            break
    assert len(os.listdir("/proc/self/fd")) <= at_first + 2
assert len(kept) == 300
for batch in kept:
    assert (batch["field"].flatten(1) - batch["field"][:, 0, :1] == np.arange(30)).all()
print("done")
"""
    done = run_script(tmp_path, code)
    assert (done.stdout, done.stderr) == ("done\n", "")


SMALL = """
import os, sys
import numpy as np, xarray as xr, superbatch as sb
from superbatch.errors import SuperbatchError
field = xr.DataArray(np.zeros((200, 64, 64), "float32"), dims=("time", "y", "x"))
window = {"field": sb.Window(field, time=16)}
loaders = lambda: [p for p in os.listdir("/proc") if p.isdigit() and os.getppid() != int(p)
                   and open(f"/proc/{p}/stat").read().rpartition(")")[2].split()[1] == str(os.getpid())]
source = sb.ArchiveSource(window, samples=128)  # 33.5 MB a slot, two slots: 4 MB are there
try:
    sb.SuperbatchDataset(source, 8, replays=1)
except SuperbatchError as error:
    print(error)
print("loaders", len(loaders()))
with sb.SuperbatchDataset(source, 8, replays=1, transport="pipe", batches_per_epoch=48) as dataset:
    print(sum(batch["field"].shape[0] for batch in dataset))
small = sb.ArchiveSource(window, samples=4)
with sb.SuperbatchDataset(small, 2, replays=1, batches_per_epoch=8) as dataset:
    print(sum(batch["field"].shape[0] for batch in dataset))
"""


def test_5_shared_memory_is_smaller_than_the_slots(tmp_path):
    mounted = "mount -t tmpfs -o size=4m tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mounted], capture_output=True).returncode:
        pytest.skip("no /dev/shm of its own can be mounted here")
    (tmp_path / "script.py").write_text(SMALL)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mounted} && exec {sys.executable} script.py"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    sentence, loaders, through_pipe, small = done.stdout.splitlines()
    for word in ("67 MB", "/dev/shm", "--shm-size", 'transport="pipe"', "samples="):
        assert word in sentence
    assert loaders == "loaders 0"  # it was said before anything was started
    assert (int(through_pipe), int(small)) == (48 * 8, 16)


def test_6_four_loaders_and_one_seed(stored):
    """Tested at length in test_dataset.py; here: positions, epochs, and a second run."""
    whole, array = stored()
    source = sb.ArchiveSource({"field": sb.Window(array, time=4)}, samples=64, sequences=4)

    def run():
        with sb.SuperbatchDataset(
            source, 8, loaders=4, replays=1, batches_per_epoch=32, seed=0
        ) as dataset:
            return [starts(dataset, whole)[:, 0].tolist() for _ in range(2)]

    first = run()
    assert first[0] != first[1]
    by_loader = np.reshape(first[0], (4, 64))
    assert len({tuple(each) for each in by_loader.tolist()}) == 4
    assert run() == first


def test_7_all_91_windows_are_reached_and_no_other(stored):
    whole, array = stored()
    source = sb.ArchiveSource(
        {"field": sb.Window(array, time=10)}, samples=512, sequences=6, chunks_per_sequence=2
    )
    assert source.describe()["windows"] == 91
    batches = serve(source, count=100, batch_size=256)
    counts = np.bincount(starts(batches, whole)[:, 0], minlength=91)
    assert len(counts) == 91
    # 25,600 draws: 281 for each; those across chunk borders (all but ten) as often as the others.
    assert counts.min() > 0.5 * counts.mean()
    assert counts.max() < 1.7 * counts.mean()


@pytest.mark.parametrize("coverage", ["random", "once"])
def test_8_short_arrays(stored, coverage):
    def windows(length, width, chunk=10):
        whole, array = stored((length, 3), (chunk, 3))
        source = sb.ArchiveSource(
            {"field": sb.Window(array, time=width)}, samples=32, coverage=coverage
        )
        feed = source.bind(Settings(8, 0, 0, 1, True, 1, 1))
        slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
        filler = feed.open()
        filled = filler.start(0, 0, slot).finish()
        filler.close()
        return starts([{"field": slot["field"][: filled.samples]}], whole)[:, 0]

    assert set(windows(25, 9)) <= set(range(17))  # the last chunk has 5
    assert set(windows(7, 4)) <= set(range(4))  # shorter than a chunk
    assert set(windows(25, 25)) == {0}  # exactly one window
    with pytest.raises(ArgumentError, match=r"26 long in 'time', where the array has 25") as caught:
        windows(25, 26)
    assert "\n" not in str(caught.value)


def test_9_an_archive_of_a_million_chunks_costs_what_a_short_one_costs(tmp_path):
    """Metadata only: most chunks are absent, and read as the fill value."""

    def cost(chunks):
        path = tmp_path / f"{chunks}.zarr"
        zarr.create_array(
            path,
            shape=(chunks * 4, 8),
            chunks=(4, 8),
            dtype="i2",
            fill_value=7,
            dimension_names=("time", "x"),
        )
        began = time.perf_counter()
        array = zarr.open_array(path, mode="r")
        source = sb.ArchiveSource({"field": sb.Window(array, time=6)}, samples=256, sequences=16)
        feed = source.bind(Settings(8, 0, 0, 1, True, 1, 1))
        slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
        filler = feed.open()
        times = []
        for index in range(6):
            at = time.perf_counter()
            filled = filler.start(0, index, slot).finish()
            times.append(time.perf_counter() - at)
            assert (slot["field"][: filled.samples] == 7).all()
        filler.close()
        return time.perf_counter() - began, min(times)

    cost(100)  # what is done once in a process
    short, long = cost(20_000), cost(2_000_000)
    assert long[0] < 3 * short[0] + 0.1
    assert long[1] < 3 * short[1] + 0.02


def test_10_no_shard_is_read_twice_for_one_superbatch(tmp_path):
    """64 inner chunks in each shard; windows across the borders of all of them."""
    whole = field((160, 32, 32), "int32")
    folder, log = tmp_path / "field.zarr", tmp_path / "reads.log"
    write_plain(
        folder,
        whole,
        chunks=(4, 8, 8),
        shards=(16, 32, 32),
        dimension_names=("time", "y", "x"),
    )
    array = zarr.open_array(CountingStore.at(folder, log), mode="r")
    source = sb.ArchiveSource(
        {"field": sb.Window(array, time=6, y=20, x=20)},
        samples=128,
        sequences=12,
        chunks_per_sequence=1,
    )
    # A sequence is of whole shards.
    assert [axis.chunks.size for axis in source.axes] == [16, 32, 32]
    feed = source.bind(Settings(8, 0, 0, 1, True, 1, 2))
    slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
    filler = feed.open()
    read = []
    for index in range(3):
        before = len(reads(log))
        filler.start(0, index, slot).finish()
        starts([{"field": slot["field"]}], whole)
        ranges = reads(log)[before:]
        assert ranges
        by_shard = {}
        for key, begin, end, size in ranges:
            by_shard.setdefault(key, []).append((begin, end, size))
        for key, parts in by_shard.items():
            parts.sort()
            for (_, end, _), (begin, _, _) in itertools.pairwise(parts):
                assert begin >= end, f"{key} was read twice: {parts}"
        read.append(len(by_shard))
    filler.close()
    assert max(read) <= 10  # there are ten shards


def test_10_a_chunk_that_several_sequences_need_is_read_once(tmp_path):
    """Short chunks of the reference, long ones of another array: sequences share the long ones."""
    whole, log = field((240, 6), "int32"), tmp_path / "reads.log"
    arrays = {}
    for name, length in (("short", 4), ("long", 60)):
        folder = tmp_path / f"{name}.zarr"
        write_plain(folder, whole, chunks=(length, 6), dimension_names=("time", "x"))
        arrays[name] = zarr.open_array(CountingStore.at(folder, log), mode="r")
    source = sb.ArchiveSource(
        {name: sb.Window(array, time=3) for name, array in arrays.items()},
        samples=128,
        sequences=16,
        chunks_per_sequence=1,
    )
    feed = source.bind(Settings(8, 0, 0, 1, True, 1, 2))
    slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
    filler = feed.open()
    for index in range(3):
        before = len(reads(log))
        filler.start(0, index, slot).finish()
        for name in arrays:
            starts([{"field": slot[name]}], whole)
        read = Counter((key, begin, end, size) for key, begin, end, size in reads(log)[before:])
        # Keys of both arrays look alike; their sizes do not.
        assert len({size for *_, size in read}) > 1
        assert max(read.values()) == 1, read.most_common(3)
    filler.close()


def test_13_descending_flipped_and_strided_views_give_what_xarray_shows(tmp_path):
    opened = write(
        tmp_path / "store.zarr",
        field((50, 24, 20)),
        dims=("time", "latitude", "x"),
        chunks=(8, 7, 20),
        coords={"latitude": np.linspace(60, 40, 24)},
    )
    views = {
        "descending": opened.field,
        "flipped": opened.field.isel(time=slice(None, None, -1)),
        "ascending": opened.field.sortby("latitude"),
        "strided": opened.field.isel(time=slice(3, None, 2), x=slice(None, None, -3)),
        "turned": opened.field.transpose("x", "time", "latitude"),
        "cut": opened.field.sel(latitude=slice(55, 45)),
    }
    for name, view in views.items():
        source = sb.ArchiveSource(
            {"field": sb.Window(view, time=5, latitude=4)},
            samples=32,
            sequences=4,
            chunks_per_sequence=1,
        )
        feed = source.bind(Settings(8, 0, 0, 1, True, 1, 1))
        plan = feed.plan.superbatch(0, 0)
        slot = PrivateSlots(Layout(feed.fields, feed.samples), 1).views[0]
        filler = feed.open()
        filler.start(0, 0, slot).finish()
        filler.close()
        names = [axis.name for axis in source.axes]
        for window, start in zip(slot["field"], plan.starts.tolist(), strict=False):
            at = dict(zip(names, start, strict=True))
            place = {"time": slice(at["time"], at["time"] + 5)}
            place["latitude"] = slice(at["latitude"], at["latitude"] + 4)
            np.testing.assert_array_equal(window, view.isel(place).values, err_msg=name)
    # And as the training loop gets it.
    (batch, *_) = serve(
        sb.ArchiveSource({"field": sb.Window(views["flipped"], time=5)}, samples=16), count=2
    )
    assert batch["field"].is_contiguous()
    assert (np.diff(batch["field"][:, :, 0, 0], axis=1) == -24 * 20).all()


@pytest.mark.parametrize("calendar", ["360_day", "noleap"])
def test_15_calendars_without_all_days(tmp_path, calendar):
    times = xr.date_range("2000-02-27", periods=60, freq="D", calendar=calendar, use_cftime=True)
    opened = write(
        tmp_path / "store.zarr",
        field((60, 3)),
        dims=("time", "x"),
        chunks=(7, 3),
        coords={"time": times},
    )
    assert opened.time.dtype == object
    source = sb.ArchiveSource(
        {
            "by_position": sb.Window(opened.field, time=4),
            "by_offset": sb.Window(opened.field, time=slice("-2D", "1D")),
        },
        samples=64,
        coverage="once",
    )
    batches = serve(source)
    position, offset = (
        starts(batches, field((60, 3)), n)[:, 0] for n in ("by_position", "by_offset")
    )
    np.testing.assert_array_equal(position, offset + 2)
    assert sorted(position) == list(range(2, 57))
    assert batches[0]["by_offset"].shape[1:] == (4, 3)


def test_17_rejected_samples_are_drawn_again_and_counted(stored):
    whole, array = stored((400, 3), (10, 3))

    def reject(sample):
        return sample["field"][0, 0] % 6 == 0  # every other start: 0, 2, 4, ...

    source = sb.ArchiveSource(
        {"field": sb.Window(array, time=4)}, samples=64, sequences=8, reject=reject
    )
    with sb.SuperbatchDataset(source, 8, replays=1) as dataset:
        batches = list(itertools.islice(dataset, 64))
        stats = dataset.stats()
    at = starts(batches, whole)[:, 0]
    assert (at % 2 == 1).all()
    assert all(len(batch["field"]) == 8 for batch in batches)
    # Half of all draws are turned down: as many again as there are samples, give or take.
    assert 0.8 * 512 < stats.rejected < 1.25 * 512 * 1.3
    assert stats.retried >= stats.rejected - 10

    def everything(sample):
        return True

    hopeless = sb.ArchiveSource(
        {"field": sb.Window(array, time=4)}, samples=64, sequences=8, reject=everything
    )
    began = time.monotonic()
    with pytest.raises(
        sb.SuperbatchError, match=r"superbatches in a row: reject turned down \d+"
    ) as caught:
        serve(hopeless, count=1)
    assert time.monotonic() - began < 30
    assert "valid=" in str(caught.value)

    once = sb.ArchiveSource(
        {"field": sb.Window(array, time=4)}, samples=64, sequences=8, reject=reject, coverage="once"
    )
    left = starts(serve(once), whole)[:, 0]
    assert sorted(left) == list(range(1, 397, 2))


@pytest.mark.timeout(400)  # 45 s alone
def test_29_memory_does_not_grow(stored):
    _, array = stored((400, 64), (10, 64))
    source = sb.ArchiveSource({"field": sb.Window(array, time=8)}, samples=64, sequences=8)

    def memory(pid):
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            (line,) = [line for line in lines if line.startswith("Private_Dirty")]
        return int(line.split()[1]) / 1024  # MB

    count = 2000
    with sb.SuperbatchDataset(source, 64, replays=1) as dataset:
        batches = iter(dataset)
        seen = []
        for number in range(1, count + 1):
            next(batches)
            if number % (count // 5) == 0:
                (pid,) = dataset._loaders.pids
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
                seen.append((memory(os.getpid()), memory(pid), descriptors))
        assert len(os.listdir(f"/proc/{pid}/task")) < 40
    ours, theirs, descriptors = zip(*seen, strict=True)
    # Dask and the allocator fill their pools and logs in the first hundreds.
    # The time line keeps its latest events, and fills up.
    assert ours[-1] - ours[0] < 3, ours
    assert theirs[-1] - theirs[1] < 2, theirs
    assert descriptors[-1] <= descriptors[0] + 1
