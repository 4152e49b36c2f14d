"""The Gateway: a server that SmartRedis clients talk to, in front of a plain Redis or Valkey."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt
import redis

from superbatch.arguments import check_count, check_seconds
from superbatch.closing import Closing
from superbatch.errors import ArgumentError, SuperbatchError, shown
from superbatch.stream.gateway.batches import Batch, Batches
from superbatch.stream.gateway.republish import Republish
from superbatch.stream.gateway.resp import (
    Commands,
    ProtocolError,
    Reply,
    Status,
    encode,
    encode_error,
)
from superbatch.stream.gateway.tensors import TensorError, pack, strings, to_array, unpack
from superbatch.stream.retention import Retention

Publish = Callable[[str, Mapping[str, npt.NDArray[Any]]], None]

# What is passed on as it is, and how many arguments it needs at least. Nothing else gets through.
_PASSED = {
    b"COPY": 3,
    b"DEL": 2,
    b"EXISTS": 2,
    b"HEXISTS": 3,
    b"HGET": 3,
    b"HGETALL": 2,
    b"HMSET": 4,
    b"HSET": 4,
    b"LLEN": 2,
    b"LRANGE": 4,
    b"RENAME": 3,
    b"RPUSH": 3,
    b"UNLINK": 2,
}
# Their reply is a simple string, which a client may insist on.
_STATUS = {b"HMSET", b"RENAME"}
_NO_TENSOR = "tensor key is empty or in a different shard"
_ARGUMENTS = 65_536
_SLOTS = 16_384


class Gateway(Closing):
    """Answers SmartRedis clients (C, C++, Fortran, Python) on top of plain Redis or Valkey, without RedisAI.

    Tensors, datasets, metadata, aggregation lists and prefixes work, by their put, get, exists, copy, rename and
    delete; with ``Client(cluster=True)`` it looks like a cluster of one. Models, scripts and the
    commands that change the server are refused. Clients are served by threads of this process.

    What clients put is also put as batches of producers, which ``StreamSource`` reads, or told to a ``publish``
    of your own: once for each batch, before the client gets its answer. A ``publish`` that waits holds the
    simulation back, and one that fails is an error there. Batches are known by their names:

    ========================================  ====================  ==========================
    put by the client                         producer              fields
    ========================================  ====================  ==========================
    ``batch_<i>`` and ``targets_<i>``          prefix, or            ``data``, ``target``
                                              ``smartredis``
    ``x.<rank>.<step>``, ``x.<rank>``          ``x.<rank>``          ``x``
    a dataset that is appended to a list      the list's name,      its tensors, by their name
                                              prefix included
    ========================================  ====================  ==========================

    Parameters
    ----------
    address : str
        The server: ``host:port``, ``redis://…``, ``rediss://…`` or ``unix://path``.
    host, port
        Where to listen; the default takes a free port on loopback. There is no password: what can reach the port
        can read and write.
    publish : callable or False, optional
        ``publish(producer, fields)`` with read-only arrays, called by one thread at a time, in the place of
        producers; False for neither.
    retention : Retention, optional
        Of the producers; ``Append()`` by default. With ``Bounded(k)`` the simulation waits for the trainer.
    targets : bool
        False: ``batch_<i>`` is a batch without ``targets_<i>``.
    timeout : float
        Seconds for a command to come in, for its answer to go out, and for the server to answer.
    connections : int
        Most clients at a time; more are turned away.
    nbytes : int
        Most bytes of a command. 512 MB is what a plain server takes as one value.

    Attributes
    ----------
    address : str
        What to set ``SSDB`` to.

    Raises
    ------
    ArgumentError
        An address that is none.
    SuperbatchError
        The server cannot be reached.

    Examples
    --------
    >>> with Gateway("127.0.0.1:6379") as gateway:  # doctest: +SKIP
    ...     subprocess.run(["./simulation"], env=os.environ | {"SSDB": gateway.address})
    """

    def __init__(
        self,
        address: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        publish: Publish | bool | None = None,
        retention: Retention | None = None,
        targets: bool = True,
        timeout: float = 30.0,
        connections: int = 256,
        nbytes: int = 512 << 20,
    ) -> None:
        check_seconds("timeout", timeout)
        check_count("port", port, 0)
        check_count("connections", connections, 1)
        check_count("nbytes", nbytes, 1)
        self._timeout, self._nbytes = float(timeout), nbytes
        self._producers = Republish(address, retention, self._timeout)
        self._publish: Publish | None = None
        if publish is None or publish is True:
            self._publish = self._producers
        elif publish is not False:
            self._publish = publish
        self._batches = Batches(targets)
        self._publishing = threading.Lock()
        self._server = _connect(address, self._timeout)
        self._closing = threading.Event()
        self._places = threading.BoundedSemaphore(connections)
        self._clients: dict[threading.Thread, socket.socket] = {}
        self._lock = threading.Lock()
        try:
            self._listener = socket.create_server((host, port))
        except OSError as error:
            raise SuperbatchError(
                f"cannot listen on {host}:{port}: {error.strerror}; port=0 takes a free one"
            ) from error
        self._listener.settimeout(0.2)
        self._host, self._port = self._listener.getsockname()[:2]
        self.address = f"{self._host}:{self._port}"
        self._acceptor = threading.Thread(
            target=self._accept, name="superbatch-gateway", daemon=True
        )
        self._acceptor.start()

    @property
    def skipped(self) -> int:
        """What clients put in the way of a batch, but is none: its tensors have different lengths, for example."""
        return self._producers.skipped

    def close(self) -> None:
        """Stop listening and end all connections. Closing twice does nothing."""
        self._closing.set()
        self._acceptor.join(5)
        self._listener.close()
        with self._lock:
            clients = dict(self._clients)
        for connection in clients.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in clients:
            thread.join(5)
        self._producers.close()
        self._server.close()

    # -- connections -----------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if not self._places.acquire(blocking=False):
                with contextlib.suppress(OSError), connection:
                    connection.sendall(encode_error("max number of clients reached"))
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._clients[thread] = connection
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        commands = Commands(
            connection, _ARGUMENTS, self._nbytes, self._timeout, self._closing.is_set
        )
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while command := commands.read():
                answer = self._answer(command)
                connection.settimeout(self._timeout)
                connection.sendall(answer)
        except ProtocolError as error:
            with contextlib.suppress(OSError):
                connection.sendall(encode_error(f"Protocol error: {error}"))
        except OSError:
            pass  # the client has gone, or does not go on: its connection ends
        finally:
            connection.close()
            with self._lock:
                self._clients.pop(threading.current_thread(), None)
            self._places.release()

    # -- commands --------------------------------------------------------------------------------

    def _answer(self, command: list[bytes]) -> bytes:
        try:
            return encode(self._run(command[0].upper(), command))
        except (SuperbatchError, redis.RedisError) as error:
            return encode_error(str(error))
        except Exception as error:  # of publish: the simulation is told
            return encode_error(f"publishing failed: {type(error).__name__}: {error}")

    def _run(self, name: bytes, command: list[bytes]) -> Reply:
        if name == b"PING":
            return command[1] if len(command) > 1 else Status(b"PONG")
        if name == b"AI.TENSORSET":
            return self._put(command)
        if name == b"AI.TENSORGET":
            return self._get(command)
        if name in (b"CLUSTER", b"COMMAND", b"INFO"):
            return self._about(name, command)
        if name not in _PASSED:
            text = command[0][:40].decode(errors="replace")
            raise SuperbatchError(
                f"unknown command '{text}': the gateway keeps tensors, datasets and lists"
            )
        if len(command) < _PASSED[name]:
            raise SuperbatchError(f"wrong number of arguments for '{name.decode()}'")
        reply = self._ask(*command)
        if name == b"HSET" and b".COMPLETE" in command[2::2] and command[1].endswith(b".meta"):
            with self._publishing:
                self._batches.dataset(_text(command[1].removesuffix(b".meta")))
        elif name == b"RPUSH" and self._publish is not None:
            for member in command[2:]:
                self._listed(_text(command[1]), _text(member))
        return Status(reply) if name in _STATUS and isinstance(reply, bytes) else reply

    def _ask(self, *command: bytes | str) -> Reply:
        """A command and its reply as they are on the wire."""
        pool = self._server.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command(*command)
            reply: Reply = connection.read_response(disable_decoding=True)
        except redis.ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # a reply may still come: it must not be taken for another one's
            raise
        finally:
            pool.release(connection)
        return reply

    def _put(self, command: list[bytes]) -> Reply:
        if len(command) < 6 or command[-2].upper() != b"BLOB":
            raise TensorError("AI.TENSORSET needs key, dtype, dimensions, BLOB and the elements")
        key = command[1]
        self._ask(b"SET", key, pack(command[2].upper(), command[3:-2], command[-1]))
        if self._publish is not None:
            with self._publishing:
                batch = self._batches.tensor(_text(key))
                if batch is not None:
                    self._tell(batch)
        return Status(b"OK")

    def _get(self, command: list[bytes]) -> Reply:
        if len(command) < 2:
            raise TensorError("AI.TENSORGET needs a key")
        value = self._ask(b"GET", command[1])
        if not isinstance(value, bytes):
            raise TensorError(_NO_TENSOR)
        dtype, shape, blob = unpack(value)
        options = {option.upper() for option in command[2:]}
        meta: list[Reply] = [b"dtype", dtype, b"shape", list(shape)]
        if b"META" not in options:
            return blob
        return [*meta, b"blob", blob] if b"BLOB" in options else meta

    def _about(self, name: bytes, command: list[bytes]) -> Reply:
        """A cluster of one: this gateway has all slots."""
        what = command[1].upper() if len(command) > 1 else b""
        if name == b"CLUSTER" and what == b"SLOTS":
            return [[0, _SLOTS - 1, [self._host.encode(), self._port, b"0" * 40]]]
        if name == b"CLUSTER" and what == b"INFO":
            return b"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n"
        if name == b"INFO":
            return self._ask(*command)
        raise SuperbatchError(f"unknown command '{_text(b' '.join(command[:2])[:40])}'")

    # -- batches ---------------------------------------------------------------------------------

    def _listed(self, name: str, key: str) -> None:
        with self._publishing:
            names = self._ask("HGET", f"{key}.meta", ".tensor_names")
            # a list may hold what is not there, or not any more
            if not isinstance(names, bytes) or not self._batches.listed(name, key):
                return
            self._tell(Batch(name, {tensor: f"{key}.{tensor}" for tensor in strings(names)}))

    def _tell(self, batch: Batch) -> None:
        assert self._publish is not None
        fields = {}
        for field, key in batch.keys.items():
            value = self._ask("GET", key)
            if not isinstance(value, bytes):
                raise TensorError(f"{key} is gone before it was published")
            fields[field] = to_array(value)
        self._publish(batch.producer, fields)


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _connect(address: str, timeout: float) -> redis.Redis:
    if not isinstance(address, str) or not address:
        raise ArgumentError(f"address={shown(address)} is none: write 'host:port' or 'unix://path'")
    url = address if re.match(r"(rediss?|unix)://", address) else f"redis://{address}"
    try:
        server = redis.Redis.from_url(
            url,
            protocol=2,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            encoding_errors="surrogateescape",
        )
        server.ping()
    except ValueError as error:
        raise ArgumentError(
            f"address={shown(address)} cannot be read: write 'host:port' or 'unix://path'"
        ) from error
    except redis.RedisError as error:
        raise SuperbatchError(f"no server answers at {address}: {error}") from error
    return server
