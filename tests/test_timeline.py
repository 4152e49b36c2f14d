"""Where time went: the trace, the picture, and the sentence that names the slowest stage."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import LocalStore

import superbatch as sb


class Slow(LocalStore):
    """A store that takes its time for each chunk."""

    async def get(self, key, prototype=None, byte_range=None):
        if "/c/" in f"/{key}":
            await asyncio.sleep(0.05)
        return await super().get(key, prototype, byte_range)


def written(store, shape=(320, 64), chunks=(4, 64), **options):
    array = zarr.create_array(
        store, shape=shape, chunks=chunks, dtype="i4", dimension_names=("time", "x"), **options
    )
    array[:] = np.random.default_rng(0).integers(0, 2**12, shape)
    return array


def served(array, step=0.0, *, batches=60, replays=1, **options):
    """Statistics of a short run whose loop takes ``step`` seconds for a batch."""
    source = sb.ArchiveSource(
        {"field": sb.Window(array, time=4)}, **{"samples": 64, "sequences": 8} | options
    )
    with sb.SuperbatchDataset(source, 8, replays=replays, loaders=1, timeout=60) as dataset:
        for number, _ in enumerate(dataset):
            time.sleep(step)
            if number == batches:
                break
        return dataset.stats()


def expensive(sample):
    time.sleep(0.004)
    return sample


def test_a_slow_store_is_named(tmp_path) -> None:
    written(LocalStore(tmp_path / "a.zarr"))
    stats = served(zarr.open_array(Slow(tmp_path / "a.zarr"), mode="r"))
    assert "reading took" in stats.explain(), stats.explain()
    assert stats.fetch_seconds > 0.5 * stats.read_seconds


def test_an_expensive_codec_is_named(tmp_path) -> None:
    codec = zarr.codecs.BloscCodec(cname="zlib", clevel=1)
    array = written(tmp_path / "a.zarr", (400, 100_000), (20, 100_000), compressors=codec)
    stats = served(array, chunks_per_sequence=2, samples=8, batches=12)
    assert "decoding took" in stats.explain(), stats.explain()


def test_an_expensive_transform_is_named(tmp_path) -> None:
    stats = served(written(tmp_path / "a.zarr"), transform=expensive)
    assert "cutting samples took" in stats.explain(), stats.explain()


def test_a_slow_loop_is_named(tmp_path) -> None:
    stats = served(written(tmp_path / "a.zarr"), step=0.03)
    assert "the training loop sets the pace" in stats.explain(), stats.explain()
    assert stats.idle_seconds > 0.3


def test_the_trace_has_what_happened(tmp_path) -> None:
    stats = served(written(tmp_path / "a.zarr"), step=0.002)
    stats.write_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = {event["args"]["name"]: event["tid"] for event in trace if event["ph"] == "M"}
    assert rows == {"training loop": 0, "loader 0": 1}
    spans = [event for event in trace if event["ph"] == "X"]
    loaded = [event for event in spans if event["tid"] == 1 and "superbatch" in event["args"]]
    assert [event["args"]["superbatch"] for event in loaded] == list(range(len(loaded)))
    assert len(loaded) >= stats.superbatches
    assert {event["name"] for event in spans if event["tid"] == 0} == {"serve", "stall"}
    # A superbatch is loaded before it is served, and what the loop did does not overlap.
    loop = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in spans if e["tid"] == 0)
    assert all(one[1] <= two[0] + 1 for one, two in itertools.pairwise(loop))
    first = next(begin for begin, _, name in loop if name == "serve")
    assert loaded[0]["ts"] + loaded[0]["dur"] <= first
    stats.plot(tmp_path / "trace.png")
    assert (tmp_path / "trace.png").stat().st_size > 5_000


def test_numbers_alone_go_to_a_logger() -> None:
    field = xr.DataArray(np.zeros((40, 3), "f4"), dims=("time", "x"))
    stats = served(field, batches=3)
    assert all(isinstance(value, (int, float)) for value in stats.as_dict().values())


@pytest.mark.parametrize("name", ["write_trace", "plot"])
def test_an_empty_time_line_can_be_written(tmp_path, name) -> None:
    from superbatch.stats import Stats

    getattr(Stats(), name)(tmp_path / "empty")
    assert any(path.stat().st_size for path in tmp_path.iterdir())
