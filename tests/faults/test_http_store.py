"""Stores behind a server that answers slowly, wrongly, or not at all."""

from __future__ import annotations

import time

import pytest
import zarr

import superbatch as sb
from tests.faults.http_store import Server
from tests.fields import corners, field, write_plain

WHOLE = field((120, 6))


@pytest.fixture
def server(tmp_path):
    write_plain(tmp_path / "field.zarr", WHOLE, chunks=(4, 6), dimension_names=("time", "x"))
    one = Server(tmp_path)
    yield one
    one.close()


@pytest.fixture(params=["fsspec", "obstore"])
def stored(request, server):
    """The array behind the server."""
    if request.param == "fsspec":
        pytest.importorskip("aiohttp")
        store = zarr.storage.FsspecStore.from_url(f"{server.url}/field.zarr", read_only=True)
    else:
        obstore = pytest.importorskip("obstore")
        # Its own retries would hide what is tried here.
        http = obstore.store.HTTPStore.from_url(
            f"{server.url}/field.zarr",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        store = zarr.storage.ObjectStore(http, read_only=True)
    return zarr.open_array(store, mode="r")


def run(stored, **options):
    """One epoch: all windows, each once; what the dataset counted."""
    source = sb.ArchiveSource(
        {"field": sb.Window(stored, time=5)}, samples=64, sequences=4, coverage="once", **options
    )
    with sb.SuperbatchDataset(source, 4, replays=1, timeout=60) as dataset:
        starts = [start for batch in dataset for start in corners(batch["field"], WHOLE)]
        return starts, dataset.stats()


@pytest.mark.parametrize("fault", ["refuses", "too many", "cut off", "closes", "slow"])
def test_what_passes_is_tried_again_and_counted(server, stored, fault) -> None:
    server.misbehave(fault, times=1, only="/c/7/")
    starts, stats = run(stored, retries=2)
    assert len(starts) == len(set(map(tuple, starts))) == 116
    assert stats.unread == 0
    if fault == "slow":
        assert stats.read_retries == 0
    elif fault != "closes":  # which the client underneath may have tried again by itself
        assert stats.read_retries > 0


@pytest.mark.parametrize("fault", ["refuses", "cut off", "garbage"])
def test_what_stays_is_raised_with_the_chunks_key(server, stored, fault) -> None:
    server.misbehave(fault, only="/c/7/")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what the store's library raises
        run(stored, retries=1)
    everything = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "c/7/0" in everything, everything


@pytest.mark.parametrize("fault", ["refuses", "cut off", "garbage"])
def test_what_stays_is_left_out_counted_and_named(server, stored, fault) -> None:
    server.misbehave(fault, only="/c/7/")
    starts, stats = run(stored, retries=1, on_error="skip")
    # Chunk 7 holds steps 28 to 31: windows of five that begin at 24 to 31 touch it.
    gone = set(range(24, 32))
    served = {int(start[0]) for start in starts}
    assert served == set(range(116)) - gone
    assert stats.unread == len(gone)
    assert any("c/7/0" in bad for bad in stats.bad_chunks), stats.bad_chunks


def test_a_server_that_never_answers_is_named_in_time(server, stored) -> None:
    server.misbehave("silent", only="/c/7/")
    began = time.monotonic()
    with pytest.raises(Exception, match=r"hangs|[Tt]ime") as caught:
        run(stored, retries=0, read_timeout=2.0)
    assert time.monotonic() - began < 30
    assert "c/7/0" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_a_read_that_hangs_is_reported_between_superbatches_through_a_pipe(server, stored) -> None:
    # Samples are on their way through the pipe while the loop does something else, and a read hangs.
    server.misbehave("silent", only="/c/29/")
    source = sb.ArchiveSource(
        {"field": sb.Window(stored, time=5)},
        samples=32,
        sequences=2,
        coverage="once",
        retries=0,
        read_timeout=1.0,
    )
    served = []

    def loop(dataset):
        for batch in dataset:
            served.extend(corners(batch["field"], WHOLE).tolist())
            if server.asked:
                server.ended.wait(2.0)  # longer than the read may take

    with (
        sb.SuperbatchDataset(
            source, 4, replays=1, timeout=60, transport="pipe", shuffle=False
        ) as dataset,
        pytest.raises(Exception, match=r"hangs|[Tt]ime"),
    ):
        loop(dataset)
    assert served
    assert len(served) == len(set(map(tuple, served)))
