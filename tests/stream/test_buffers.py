"""Each way to keep batches on the server with each way to train on them: the table of docs/streams.md, run."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import superbatch as sb
from superbatch import stream
from superbatch.stream.address import connect

BATCHES, SAMPLES, EACH = 24, 4, 500_000  # 2 MB a batch, in two pieces
KEPT = 6
MEMORY = 30_000_000

RETENTIONS = {
    "Append": stream.Append(),
    "Ring": stream.Ring(KEPT),
    "Overwrite": stream.Overwrite(),
    "LRU": stream.LRU(MEMORY),
    "Bounded": stream.Bounded(KEPT),
}
BUFFERS = {
    "Rounds": {"buffer": stream.Rounds(4)},
    "Reservoir": {"buffer": stream.Reservoir(capacity=32, watermark=8)},
    "latest": {"latest": True},
}


@pytest.fixture
def server():
    with stream.Server() as one:
        yield one


def put_all(address: str, retention: stream.Append) -> None:
    with stream.Producer(address, "sim", retention, timeout=60) as producer:
        for number in range(BATCHES):
            x = np.full((SAMPLES, EACH), number, "u1")
            x[:, 0] = np.arange(SAMPLES)
            producer.put(x=x)


def there(address: str) -> set[int]:
    """The batches that are on the server as a whole."""
    pieces = [key for key in connect(address, 5).scan_iter() if b":v:" in key]
    numbers = [int(key.split(b":")[-3]) for key in pieces]
    return {
        number for number in numbers if numbers.count(number) == max(map(numbers.count, numbers))
    }


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("buffer", BUFFERS)
def test_what_is_served_is_what_the_table_says(server, retention, buffer) -> None:
    writer = threading.Thread(target=put_all, args=(server.address, RETENTIONS[retention]))
    writer.start()
    if retention != "Bounded":  # which waits for the trainer
        writer.join(60)
    before = there(server.address)
    source = stream.StreamSource(
        server.address, "sim", timeout=60, largest=SAMPLES, **BUFFERS[buffer]
    )
    seen: list[tuple[int, int]] = []
    with sb.SuperbatchDataset(
        source, batch_size=None, replays=1, shuffle=False, timeout=60
    ) as dataset:
        for batch in dataset:
            x = batch["x"].numpy()
            number = int(x[0, 1])
            assert (x[:, 1:] == number).all()  # whole, and of one batch
            assert x[:, 0].tolist() == list(range(SAMPLES))
            seen.append(number)
        counted = dataset.stats().source
    writer.join(60)
    served = set(seen)
    newest = BATCHES - 1
    if buffer == "latest":
        assert seen == sorted(served)
        assert newest in served
        assert len(seen) + counted["skipped"] + counted["gaps"] <= BATCHES
        if retention != "Bounded":
            assert seen == [newest]
        return
    if buffer == "Rounds":
        assert seen == sorted(served)  # in the order of production, none twice
    expected = {
        "Append": set(range(BATCHES)),
        "Bounded": set(range(BATCHES)),
        "Ring": set(range(BATCHES - KEPT, BATCHES)),
        "Overwrite": {newest},
    }
    if retention == "LRU":
        # what is read may have the server throw out another meanwhile
        assert there(server.address) <= served <= before
        assert counted["evicted"] + counted["torn"] == BATCHES - len(served) > 0
    else:
        assert served == expected[retention]
        assert counted["evicted"] == counted["torn"] == 0
        # a trainer that comes late begins with the first that is there: what was before is no gap
        assert counted["gaps"] == 0


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("buffer", BUFFERS)
def test_what_is_not_served_is_counted(server, retention, buffer) -> None:
    """A trainer that was there from the first batch on, and then falls behind."""
    producer = stream.Producer(server.address, "sim", RETENTIONS[retention], timeout=60)
    begun = threading.Event()

    def put() -> None:
        with producer:
            for number in range(BATCHES):
                producer.put(x=np.full((SAMPLES, EACH), number, "u1"))
                if number == 3 and retention != "Overwrite":
                    begun.wait(60)  # enough for a round

    writer = threading.Thread(target=put)
    source = stream.StreamSource(
        server.address, "sim", timeout=60, largest=SAMPLES, **BUFFERS[buffer]
    )
    writer.start()
    seen = []
    with sb.SuperbatchDataset(
        source, batch_size=None, replays=1, shuffle=False, timeout=60
    ) as dataset:
        for batch in dataset:
            if not seen:
                begun.set()
                if retention != "Bounded":
                    writer.join(60)
            number = int(batch["x"][0, 0])
            assert (batch["x"] == number).all()
            seen.append(number)
        counted = dataset.stats().source
    writer.join(60)
    lost = sum(counted[name] for name in ("gaps", "evicted", "torn", "skipped"))
    first = min(seen) if retention == "Overwrite" else 0  # nobody waited for it to begin
    assert BATCHES - first - lost <= len(set(seen)) <= BATCHES - lost
    if buffer != "Reservoir":
        assert seen == sorted(set(seen))
    if retention in ("Append", "Bounded"):
        assert lost == counted["skipped"]
    assert BATCHES - 1 in seen


def test_a_batch_of_which_a_part_is_gone_is_torn(server) -> None:
    put_all(server.address, stream.Append())
    client = connect(server.address, 5)
    lost = [
        key for key in client.scan_iter() if b":v:" in key and key.split(b":")[-3] in (b"3", b"7")
    ]
    client.delete(lost[0])
    lost_whole = {b"3", b"7"} - {lost[0].split(b":")[-3]}
    client.delete(*[key for key in lost if key.split(b":")[-3] in lost_whole])
    source = stream.StreamSource(server.address, "sim", stream.Rounds(4))
    with sb.SuperbatchDataset(source, batch_size=None, replays=1, shuffle=False) as dataset:
        seen = [int(batch["x"][0, 1]) for batch in dataset]
        counted = dataset.stats().source
    assert seen == [number for number in range(BATCHES) if number not in (3, 7)]
    assert (counted["torn"], counted["evicted"]) == (1, 1)


@pytest.mark.parametrize("buffer", [stream.Rounds(1), stream.Reservoir(80, ratio=2)])
def test_a_simulation_that_is_slow_is_named(server, buffer) -> None:
    def put() -> None:
        with stream.Producer(server.address, "sim") as producer:
            for number in range(25):
                time.sleep(0.03)  # it computes
                producer.put(x=np.full((8, 2), number, "i4"))

    writer = threading.Thread(target=put)
    writer.start()
    source = stream.StreamSource(server.address, "sim", buffer)
    with sb.SuperbatchDataset(source, 8, replays=1) as dataset:
        assert len(list(dataset)) >= 25
        told = dataset.stats().explain()
    writer.join(30)
    assert "waiting for producers took" in told, told


def test_a_reservoir_takes_in_what_comes_while_training_is_busy(server) -> None:
    """Otherwise a simulation that waits for the trainer would stand still for as long as a superbatch lasts."""
    with stream.Producer(server.address, "sim", stream.Bounded(2), timeout=30) as producer:
        for number in range(2):
            producer.put(x=np.full((8, 2), number, "i4"))
        buffer = stream.Reservoir(capacity=800, watermark=8, superbatch=8)
        source = stream.StreamSource(server.address, "sim", buffer)
        with sb.SuperbatchDataset(source, batch_size=8, replays=1, seed=0) as dataset:
            batches = iter(dataset)
            next(batches)
            # nothing is asked for, and all slots are full: far more than what may wait on the server
            for number in range(2, 90):
                producer.put(x=np.full((8, 2), number, "i4"))
            producer.close()
            seen = [batch["x"] for batch in batches]
            assert dataset.stats().source["batches"] == 90
    assert {int(x) for batch in seen for x in batch[:, 0]} >= set(range(2, 90))
