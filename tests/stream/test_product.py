"""Producers, servers and readers of the package itself, on a real server."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import superbatch as sb
from superbatch import stream
from superbatch.stream.address import connect
from superbatch.stream.entry import Found
from superbatch.stream.reader import Reader
from tests.processes import ROOT, until

PRODUCE = """
import sys, numpy as np
from superbatch import stream
address, name, count, retention = sys.argv[1:]
with stream.Producer(address, name, eval("stream." + retention)) as producer:
    for number in range(int(count)):
        x = np.full((4, 3, 25_000), number, "i4")  # two pieces
        producer.put(x=x, y=np.arange(4) + 10 * number)
"""


@pytest.fixture
def server():
    with stream.Server() as one:
        yield one


def process(address: str, name: str, count: int, retention: str = "Append()"):
    return subprocess.Popen(
        [sys.executable, "-c", PRODUCE, address, name, str(count), retention],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def everything(reader: Reader, pattern: str = "*", wait: float = 5.0):
    return reader.entries({}, pattern, wait)


def fetched(reader: Reader, entry) -> dict[str, np.ndarray] | None:
    into = {n: np.empty((entry.samples, *s), d) for n, (s, d) in entry.fields.items()}
    return into if reader.fetch(entry, into) is Found.WHOLE else None


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i8", "u2", "?", "c8", ">f4", ">i2"])
def test_arrays_come_back_as_they_were_put(server, dtype) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (5, 7, 40)).astype(dtype)
    other = np.asfortranarray(rng.random((5, 3)))
    with stream.Producer(server.address, "sim0") as producer:
        assert producer.put(x=x, other=other) == 0
        assert producer.put(x=x[::-1, :, ::2], other=other) == 1
    reader = Reader(server.address)
    first, second, end = everything(reader)
    assert (first.number, second.number, end.last) == (0, 1, True)
    for entry, expected in ((first, x), (second, x[::-1, :, ::2])):
        got = fetched(reader, entry)
        assert np.array_equal(got["x"], expected)
        assert got["x"].dtype == np.dtype(dtype).newbyteorder("=")
        assert np.array_equal(got["other"], other)
    reader.close()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "no array"),
        ({"x": np.float32(3)}, r"shape \(\): put an array whose first"),
        ({"x": np.zeros((0, 3))}, r"shape \(0, 3\)"),
        ({"x": np.array(["a"])}, "put numbers"),
        ({"x": np.array([object()])}, "put numbers"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, "put as many of each"),
    ],
)
def test_what_is_no_batch_is_refused(server, arrays, message) -> None:
    with (
        stream.Producer(server.address, "sim0") as producer,
        pytest.raises(ValueError, match=message),
    ):
        producer.put(**arrays)


@pytest.mark.parametrize(("retention", "kept"), [(stream.Ring(3), 3), (stream.Overwrite(), 1)])
def test_only_the_newest_stay(server, retention, kept) -> None:
    with stream.Producer(server.address, "sim0", retention) as producer:
        for number in range(20):
            producer.put(x=np.full((2, 300_000), number))
        reader = Reader(server.address)
        entries = everything(reader)
        assert [e.number for e in entries] == list(range(20 - kept, 20))
        assert all((fetched(reader, e)["x"] == e.number).all() for e in entries)
    client = connect(server.address, 5)
    values = [k for k in client.scan_iter() if b":v:" in k]
    assert len(values) == kept * 5  # 4.8 MB in pieces of 1 MiB, and nothing of the others


def test_a_bounded_producer_waits_for_the_trainer_with_a_deadline(server) -> None:
    reader = Reader(server.address)
    producer = stream.Producer(server.address, "sim0", stream.Bounded(2), timeout=1.0)
    for number in range(2):
        producer.put(x=np.full(3, number))
    began = time.monotonic()
    with pytest.raises(sb.SuperbatchError, match=r"took no batch of 'sim0' within timeout=1 s"):
        producer.put(x=np.zeros(3))
    assert 0.9 < time.monotonic() - began < 5
    (first, _) = everything(reader)
    threading.Timer(0.3, reader.taken, ("sim0", first.run, first.number)).start()
    assert producer.put(x=np.full(3, 2)) == 2  # woken up, long before its deadline
    producer.close()


def test_the_server_is_full(tmp_path) -> None:
    with stream.Server(maxmemory="20MB") as server:
        producer = stream.Producer(server.address, "sim0", timeout=2)

        def fill() -> None:
            for _ in range(20):
                producer.put(x=np.zeros((1, 2_000_000), "u1"))

        with pytest.raises(sb.SuperbatchError, match=r"more memory, or write retention="):
            fill()
        reader = Reader(server.address)
        entries = everything(reader)
        assert 5 <= len(entries) < 20
        assert all((fetched(reader, e)["x"] == 0).all() for e in entries)
        producer._stop()


def test_what_the_server_throws_out_is_gone_and_the_rest_is_right(server) -> None:
    with stream.Producer(server.address, "sim0", stream.LRU("30MB")) as producer:
        for number in range(30):
            producer.put(x=np.full((1, 2_000_000), number, "u1"))
    reader = Reader(server.address)
    entries = [e for e in everything(reader) if not e.last]
    assert len(entries) == 30  # the index is never thrown out
    got = [fetched(reader, e) for e in entries]
    assert 0 < sum(g is None for g in got) < 30
    assert all((g["x"] == e.number).all() for g, e in zip(got, entries, strict=True) if g)


def test_ten_thousand_reads_of_what_is_overwritten_are_never_torn(server) -> None:
    writer = process(server.address, "sim0", 100_000, "Overwrite()")
    try:
        reader, read, numbers = Reader(server.address), 0, set()
        deadline = time.monotonic() + 100
        entries: list = []
        while read < 10_000 and time.monotonic() < deadline:
            entries = reader.entries({}, "sim0", 1.0) or entries
            for entry in [e for e in entries if not e.last][-1:]:
                got = fetched(reader, entry)
                read += 1
                if got is not None:
                    assert (got["x"] == entry.number).all()
                    assert (got["y"] == np.arange(4) + 10 * entry.number).all()
                    numbers.add(entry.number)
        assert read == 10_000
        assert len(numbers) > 100
    finally:
        writer.kill()
        writer.wait(10)


class Proxy(threading.Thread):
    """Passes bytes on, until it is told to cut a connection after so many of the answer."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self.path, self.cuts = path, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            other = socket.socket(socket.AF_UNIX)
            other.connect(self.path)
            threading.Thread(target=self._pump, args=(one, other, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(other, one, True), daemon=True).start()

    def _pump(self, source, target, answer) -> None:
        try:
            while data := source.recv(1 << 16):
                if answer and self.cuts:
                    self.cuts[0] -= len(data)
                    if self.cuts[0] <= 0:
                        self.cuts.pop(0)
                        break
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_connection_that_is_cut_in_the_middle_of_a_value_is_made_again(server) -> None:
    proxy = Proxy(server.address.removeprefix("unix://"))
    with stream.Producer(server.address, "sim0") as producer:
        for number in range(6):
            producer.put(x=np.full((4, 1_000_000), number, "i4"))
    reader = Reader(proxy.address, timeout=20)
    entries = [e for e in everything(reader) if not e.last]
    for entry in entries:
        proxy.cuts.append(9_000_000)  # of 16 MB
        assert (fetched(reader, entry)["x"] == entry.number).all()
        assert not proxy.cuts
    proxy.listener.close()


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_put_whose_answer_was_lost_is_there_once(server, size) -> None:
    # A small batch has reached the server as a whole when its first answer comes, a large one in part.
    proxy = Proxy(server.address.removeprefix("unix://"))
    with stream.Producer(proxy.address, "sim0", timeout=20) as producer:
        for number in range(20):
            if number % 3 == 1:
                proxy.cuts.append(1)  # the server has got it; the producer never hears
            producer.put(x=np.full((2, size), number, "i4"))
    reader = Reader(server.address)
    entries = [e for e in everything(reader) if not e.last]
    assert [e.number for e in entries] == list(range(20))
    assert all((fetched(reader, e)["x"] == e.number).all() for e in entries)
    proxy.listener.close()


def test_a_producer_goes_on_with_its_numbers_or_begins_a_run(server) -> None:
    one = stream.Producer(server.address, "sim0")
    for number in range(3):
        one.put(x=np.full(2, number))
    again = stream.Producer(server.address, "sim0", resume=True)
    assert (again.run, again.put(x=np.full(2, 3))) == (one.run, 3)
    copy = pickle.loads(pickle.dumps(again))
    assert copy.put(x=np.full(2, 4)) == 4
    other = stream.Producer(server.address, "sim0")
    assert other.run != one.run
    assert other.put(x=np.full(2, 0)) == 0
    reader = Reader(server.address)
    known = {"sim0": (one.run, 2)}
    assert [(e.run, e.number) for e in reader.entries(known, "sim*", 5)] == [
        (one.run, 3),
        (one.run, 4),
        (other.run, 0),
    ]
    for producer in (one, again, copy, other):
        producer._stop()


def test_a_password_is_asked_for_and_never_shown() -> None:
    with stream.Server(password="hunter2") as server:
        with stream.Producer(server.address, "sim0") as producer:
            producer.put(x=np.arange(3))
        reader = Reader(server.address)
        assert (fetched(reader, everything(reader)[0])["x"] == np.arange(3)).all()
        wrong = server.address.replace("hunter2", "hunter3")
        with pytest.raises(sb.SuperbatchError) as caught:
            stream.Producer(wrong, "sim1", timeout=2)
        assert "hunter" not in str(caught.value)
        assert "***" in str(caught.value)


def test_no_server_is_said_in_time() -> None:
    began = time.monotonic()
    for make in (
        lambda: stream.Producer("127.0.0.1:1", "sim0", timeout=0.5),
        lambda: Reader("127.0.0.1:1", 0.5).producers("*"),
        lambda: stream.latest_model("127.0.0.1:1", "net", timeout=0.5),
    ):
        with pytest.raises(sb.SuperbatchError, match=r"127.0.0.1:1 did not answer"):
            make()
    assert time.monotonic() - began < 10


def test_a_new_batch_is_noticed_without_polling(server) -> None:
    reader = Reader(server.address)
    with stream.Producer(server.address, "sim0") as producer:
        producer.put(x=np.zeros(3))
        (entry,) = everything(reader)
        after = {"sim0": (entry.run, entry.number)}
        threading.Timer(0.3, producer.put, (), {"x": np.zeros(3)}).start()
        began = time.monotonic()
        (entry,) = reader.entries(after, "sim*", 20.0)
        assert entry.number == 1
        assert 0.25 < time.monotonic() - began < 5


def test_models_are_whole_and_waited_for(server) -> None:
    assert stream.latest_model(server.address, "net") is None
    assert stream.publish_model(server.address, "net", b"one" * 100_000) == 1
    assert stream.latest_model(server.address, "net") == (1, b"one" * 100_000)
    threading.Timer(0.3, stream.publish_model, (server.address, "net", b"two")).start()
    assert stream.latest_model(server.address, "net", after=1, wait=20) == (2, b"two")
    assert stream.latest_model(server.address, "net", after=2, wait=0.1) is None


def test_the_server_ends_with_the_process_that_started_it() -> None:
    code = (
        "from superbatch import stream; s = stream.Server(); print(s.address, flush=True); input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    address = parent.stdout.readline().strip()
    stream.Server(address).close()  # it answers, and is not ours to end
    stream.Server(address)
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)

    def gone() -> bool:
        try:
            connect(address, 1).ping()
        except Exception:
            return True
        return False

    assert until(gone, 5)


@pytest.mark.parametrize("port", [False, True])
@pytest.mark.parametrize("retention", ["Append()", "Bounded(3)"])
def test_a_dataset_trains_on_everything_once(retention, port) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    with stream.Server(port=number if port else None) as server:
        address = f"127.0.0.1:{number}" if port else server.address
        writers = [process(address, f"sim{k}", 12, retention) for k in range(2)]
        source = stream.StreamSource(address, "sim*", stream.Rounds(4), timeout=60)
        seen = []
        with sb.SuperbatchDataset(source, batch_size=None, replays=2, timeout=60) as dataset:
            for batch in dataset:
                x, y = batch["x"].numpy(), batch["y"].numpy()
                first = x[:, :1, :1]
                assert (x == first).all()
                assert sorted(y.tolist()) == [10 * x[0, 0, 0] + k for k in range(4)]
                seen.append(int(x[0, 0, 0]))
            stats = dataset.stats()
        assert sorted(seen) == sorted(list(range(12)) * 4)  # two producers, two passes
        assert stats.fresh == stats.replayed == 2 * 12 * 4
        for writer in writers:
            assert writer.wait(20) == 0


def values(address: str) -> list[bytes]:
    return [key for key in connect(address, 5).scan_iter() if b":v:" in key]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("retention", "most"), [(stream.Overwrite(), 1), (stream.Ring(3), 3), (stream.Bounded(3), 3)]
)
def test_what_earlier_lives_left_counts(server, retention, most, resume) -> None:
    reader, after = Reader(server.address), {}
    for _ in range(6):
        producer = stream.Producer(server.address, "sim0", retention, resume=resume)
        for _ in range(2):
            producer.put(x=np.zeros(3))
        producer._stop()  # as if it had been killed: the run is not closed
        for entry in reader.entries(after, "sim0", 5):
            after["sim0"] = entry.run, entry.number
            reader.taken("sim0", entry.run, entry.number)
        assert len(values(server.address)) <= most
    assert connect(server.address, 5).xlen("sb:{sim0}:index") <= most


def test_lives_that_nobody_takes_from_hold_a_bounded_producer_back(server) -> None:
    for life in range(3):
        producer = stream.Producer(server.address, "sim0", stream.Bounded(4), timeout=0.5)
        if life < 2:
            for _ in range(2):
                producer.put(x=np.zeros(3))
        else:
            with pytest.raises(sb.SuperbatchError, match="took no batch"):
                producer.put(x=np.zeros(3))
        producer._stop()


def test_a_server_that_comes_back_empty_learns_of_its_producers(server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = stream.Server(port=port)
    producer = stream.Producer(f"127.0.0.1:{port}", "sim0")
    reader = Reader(f"127.0.0.1:{port}")
    producer.put(x=np.zeros(3))
    (entry,) = everything(reader, "sim*")
    one.close()
    with stream.Server(port=port):
        producer.put(x=np.ones(3))
        (new,) = reader.entries({"sim0": (entry.run, entry.number)}, "sim*", 10)
        assert (new.run, new.number) == (entry.run, 1)
        assert (fetched(reader, new)["x"] == 1).all()
        producer.close()


def test_a_clock_that_is_behind_loses_nothing(server) -> None:
    ahead = stream.Producer(server.address, "sim0")
    behind = stream.Producer(server.address, "sim0")
    ahead._stamp += 3_600_000
    numbers = []
    for number in range(3):
        ahead.put(x=np.full(2, number))
        behind.put(x=np.full(2, 10 + number))
        numbers += [number, 10 + number]
    reader = Reader(server.address)
    assert [fetched(reader, e)["x"][0] for e in everything(reader)] == numbers
    for producer in (ahead, behind):
        producer._stop()


def listening() -> set[str]:
    """Addresses and ports that somebody listens at, as the kernel writes them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, at, _, state, *_ = line.split()
            if state == "0A":
                found.add(at)
    return found


def test_a_server_with_a_port_listens_on_loopback_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with stream.Server(port=port):
        assert [at for at in listening() if at.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    before = listening()
    with stream.Server():
        assert listening() <= before
