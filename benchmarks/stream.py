"""Streams against other ways to move the same bytes: ``python -m benchmarks stream``.

One server of its own on a unix socket, Valkey or Redis, whichever ``stream.Server`` finds. All take turns in each
round, and what is compared is done to the same end: a batch of 16 MiB in memory that is there already, or on the
server with an entry that announces it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import smartredis
from superbatch import stream
from superbatch.stream.entry import Found
from superbatch.stream.reader import Reader

MIB = 1 << 20
_PIECE = MIB


def read(address: str, rounds: int, batches: int) -> dict[str, list[float]]:
    """GB/s into warm memory: ours, redis-py with hiredis, and a plain socket with another process behind it."""
    array = np.random.default_rng(0).integers(0, 255, 16 * MIB, dtype=np.uint8)[None]
    memory = np.zeros_like(array)
    with (
        stream.Producer(address, "read") as producer,
        _hiredis(address) as client,
        _sender(array) as plain,
        contextlib.closing(Reader(address)) as reader,
    ):
        for _ in range(batches):
            producer.put(data=array)
        client.set("plain", array.tobytes())
        entries = reader.entries({}, "read", 5.0)
        view = memoryview(memory).cast("B")

        def ours() -> None:
            for entry in entries:
                assert reader.fetch(entry, {"data": memory}) is Found.WHOLE

        def redis_py() -> None:
            for _ in entries:
                view[:] = client.get("plain")

        def plain_socket() -> None:
            for _ in entries:
                plain.sendall(b"x")
                for at in range(0, len(view), _PIECE):
                    _receive(plain, view[at : at + _PIECE])

        ways = {"superbatch": ours, "redis-py, hiredis": redis_py, "a plain socket": plain_socket}
        found = _turns(ways, rounds, array.nbytes * batches / 1e9, memory, array)
        client.delete("plain")
    return found


def read_smartredis(address: str, rounds: int, batches: int) -> dict[str, list[float]]:
    """GB/s as in :func:`read`, ours and SmartRedis' client through the gateway."""
    array = np.random.default_rng(0).integers(0, 255, 16 * MIB, dtype=np.uint8)[None]
    memory = np.zeros_like(array)
    with (
        stream.Producer(address, "read-again") as producer,
        contextlib.closing(Reader(address)) as reader,
        smartredis.running(address, batches, array.nbytes) as client,
    ):
        for _ in range(batches):
            producer.put(data=array)
        entries = reader.entries({}, "read-again", 5.0)

        def ours() -> None:
            for entry in entries:
                assert reader.fetch(entry, {"data": memory}) is Found.WHOLE

        ways = {"superbatch": ours, "SmartRedis, through the gateway": client.fetch}
        return _turns(ways, rounds, array.nbytes * batches / 1e9)


def put(address: str, rounds: int, batches: int) -> dict[str, list[float]]:
    """GB/s onto the server, with an entry for each batch: ours, and redis-py with hiredis."""
    array = np.random.default_rng(0).integers(0, 255, 16 * MIB, dtype=np.uint8)[None]
    with (
        stream.Producer(address, "put", stream.Ring(2)) as producer,
        _hiredis(address) as client,
    ):

        def ours() -> None:
            for _ in range(batches):
                producer.put(data=array)

        def redis_py() -> None:
            for number in range(batches):
                with client.pipeline(transaction=True) as pipe:
                    pipe.set(f"plain:{number % 2}", array.tobytes())
                    pipe.xadd("plain", {"key": f"plain:{number % 2}", "dtype": "u1"}, maxlen=2)
                    pipe.execute()

        found = _turns(
            {"superbatch": ours, "redis-py, hiredis": redis_py},
            rounds,
            array.nbytes * batches / 1e9,
        )
        client.delete("plain", "plain:0", "plain:1")
    return found


def notice(address: str, count: int) -> list[float]:
    """Milliseconds from the moment that a small batch is put to its entry being in the reader's hands."""
    process = get_context("spawn").Process(target=_put_now_and_then, args=(address, count))
    process.start()
    delays: list[float] = []
    with contextlib.closing(Reader(address)) as reader:
        after: dict[str, tuple[str, int]] = {}
        deadline = time.monotonic() + 60
        while len(delays) < count and time.monotonic() < deadline:
            for entry in reader.entries(after, "notice", 5.0):
                if not entry.last:
                    delays.append(1e3 * (time.time() - entry.time))
                after["notice"] = (entry.run, entry.number)
    process.join(10)
    return delays


def load(address: str, producers: int, rate: float, seconds: float) -> dict[str, float]:
    """Many producers of 1 MiB batches, each with a ring of four: puts reached, and the server's memory."""
    processes = min(5, producers)
    context = get_context("spawn")
    done = context.Queue()
    started = [
        context.Process(
            target=_put_steadily,
            args=(address, range(n, producers, processes), rate, seconds, done),
        )
        for n in range(processes)
    ]
    for process in started:
        process.start()
    with _hiredis(address) as client:
        counts, most = [], 0
        deadline = time.monotonic() + seconds + 120
        while len(counts) < processes and time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # queue.Empty
                counts.append(done.get(timeout=1.0))
            most = max(most, client.info("memory")["used_memory"])
    for process in started:
        process.join(10)
    return {"asked": producers * rate * seconds, "reached": sum(counts), "memory_bytes": most}


def _put_now_and_then(address: str, count: int) -> None:
    rng = np.random.default_rng(1)
    with stream.Producer(address, "notice") as producer:
        for _ in range(count):
            time.sleep(float(rng.uniform(0.005, 0.03)))  # when nobody expects it
            producer.put(data=np.zeros((1, 256), "f4"))


def _put_steadily(address: str, numbers: range, rate: float, seconds: float, done: Any) -> None:
    array = np.zeros((1, MIB), np.uint8)
    counts = [0] * len(numbers)

    def run(at: int, number: int) -> None:
        with stream.Producer(address, f"load{number}", stream.Ring(4)) as producer:
            begin = time.monotonic()
            while (now := time.monotonic()) < begin + seconds:
                due = begin + counts[at] / rate
                if due > now:
                    time.sleep(due - now)
                producer.put(data=array)
                counts[at] += 1

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(numbers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.put(sum(counts))


def _turns(
    ways: dict[str, Callable[[], None]],
    rounds: int,
    gigabytes: float,
    memory: Any = None,
    right: Any = None,
) -> dict[str, list[float]]:
    """GB/s of each way in each round; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            if memory is not None:
                memory[:] = 0
            begin = time.perf_counter()
            way()
            seconds = time.perf_counter() - begin
            if memory is not None and not np.array_equal(memory, right):
                raise RuntimeError(f"{name} read something else than was put")
            if number:
                found[name].append(gigabytes / seconds)
    return found


@contextlib.contextmanager
def _hiredis(address: str) -> Iterator[Any]:
    import hiredis  # noqa: F401  # redis-py then uses it by itself
    import redis

    client = redis.Redis(unix_socket_path=address.removeprefix("unix://"))
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _sender(array: Any) -> Iterator[socket.socket]:
    """A connection to a process that sends an array for each byte that it gets."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        process = get_context("spawn").Process(target=_send, args=(path, array.tobytes()))
        process.start()
        connection = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 30
        while True:
            try:
                connection.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        try:
            yield connection
        finally:
            connection.close()
            process.join(10)


def _send(path: str, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        connection, _ = listening.accept()
        view = memoryview(data)
        while connection.recv(1):
            for at in range(0, len(view), _PIECE):
                connection.sendall(view[at : at + _PIECE])


def _receive(connection: socket.socket, into: memoryview) -> None:
    at = 0
    while at < len(into):
        got = connection.recv_into(into[at:])
        if not got:
            raise ConnectionError("the sender is gone")
        at += got


def run(quick: bool, repeat: int) -> dict[str, Any]:
    """All of it."""
    with stream.Server() as server:
        with _hiredis(server.address) as client:
            about = client.info("server")
        return {
            "quick": quick,
            "server": f"{about.get('server_name', 'redis')} {about.get('valkey_version', about['redis_version'])}",
            "read": read(server.address, repeat, 2 if quick else 8),
            "read_smartredis": (
                read_smartredis(server.address, repeat, 2 if quick else 8)
                if smartredis.PYTHON
                else None
            ),
            "put": put(server.address, repeat, 2 if quick else 8),
            "notice_ms": notice(server.address, 20 if quick else 200),
            "load": load(server.address, 4 if quick else 50, 20, 2 if quick else 60),
        }


def text(found: dict[str, Any]) -> str:
    """The table, beside what is asked for."""
    rows = []

    def ratio(what: str, peer: str, aim: float, key: str | None = None) -> None:
        mine, other = found[key or what]["superbatch"], found[key or what][peer]
        times = statistics.median(a / b for a, b in zip(mine, other, strict=True))
        rate = statistics.median(mine)
        rows.append(
            f"| {what}, against {peer} | {rate:.2f} GB/s | {times:.2f} × | ≥ {aim:g} × | {_met(times >= aim)} |"
        )

    ratio("read", "redis-py, hiredis", 2.0)
    ratio("read", "a plain socket", 0.7)
    if found.get("read_smartredis"):
        ratio("read", "SmartRedis, through the gateway", 3.0, "read_smartredis")
    ratio("put", "redis-py, hiredis", 5.0)
    delays = sorted(found["notice_ms"])
    half, most = statistics.median(delays), delays[int(0.95 * (len(delays) - 1))]
    rows.append(
        f"| a new batch noticed | 95 %: {most:.2f} ms | {half:.2f} ms | ≤ 2 ms | {_met(half <= 2)} |"
    )
    held = found["load"]
    share = held["reached"] / held["asked"]
    rows.append(
        f"| {held['asked']:,.0f} batches of 1 MiB in time | server's memory {held['memory_bytes'] / 1e6:,.0f} MB | "
        f"{held['reached']:,.0f} | all | {_met(share > 0.98)} |"
    )
    head = "| streams | rate | measured | aim | reached |\n| --- | ---: | ---: | ---: | ---: |"
    title = f"{found['server']}, unix socket, batches of 16 MiB" + (
        "; QUICK, not for comparison" if found["quick"] else ""
    )
    note = (
        "SmartRedis' own client asks for RedisAI, so that it runs on a plain server through the gateway alone: "
        "its rate holds the gateway's time."
        if found.get("read_smartredis")
        else "SmartRedis' own client is not compared: SUPERBATCH_SMARTREDIS_PYTHON names no Python that has it."
    )
    return "\n".join([title, "", head, *rows, "", note])


def _met(yes: bool) -> str:
    return "yes" if yes else "no"


def main(arguments: list[str]) -> int:
    """``python -m benchmarks stream``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks stream", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short, and marked as such")
    parser.add_argument("--repeat", type=int, help="rounds; default 7, with --quick 1")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write everything that was measured"
    )
    options = parser.parse_args(arguments)
    found = run(options.quick, options.repeat or (1 if options.quick else 7))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
