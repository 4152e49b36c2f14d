"""Commands and replies of the Redis protocol, version 2. What comes in is bounded, and only ever bytes.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from superbatch.errors import SuperbatchError

_LINE = 64  # bytes of a length line; a 64-bit number has 20
_PIECE = 1 << 20


class ProtocolError(SuperbatchError):
    """Bytes that are no command, or one that is too large."""


class Status(bytes):
    """A reply such as ``OK``: a simple string."""


Reply = int | bytes | None | list["Reply"]


class Commands:
    """Reads commands from a connection.

    Parameters
    ----------
    connection : socket
    arguments : int
        Most arguments of a command.
    nbytes : int
        Most bytes of a command, all its arguments together.
    timeout : float
        Seconds from the first byte of a command to its last.
    stopped : callable
        Asked about twice a second while nothing comes; True ends the reading.
    """

    def __init__(
        self,
        connection: socket.socket,
        arguments: int,
        nbytes: int,
        timeout: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._connection, self._stopped = connection, stopped
        self._arguments, self._nbytes, self._timeout = arguments, nbytes, timeout
        self._buffer = bytearray()
        self._end = 0.0

    def read(self) -> list[bytes] | None:
        """The next command; None where the other end, or this one, has closed.

        Raises
        ------
        ProtocolError
            Something else than an array of bulk strings, or more than is allowed.
        TimeoutError
            A command that was begun and does not go on.
        """
        while not self._buffer:
            if self._stopped():
                return None
            self._connection.settimeout(0.5)
            try:
                piece = self._connection.recv(_PIECE)
            except TimeoutError:
                continue
            if not piece:
                return None
            self._buffer += piece
        self._end = time.monotonic() + self._timeout
        count = self._number(b"*", self._arguments)
        if count < 1:
            raise ProtocolError("a command has no name")
        left = self._nbytes
        command = []
        for _ in range(count):
            length = self._number(b"$", left)
            left -= length
            command.append(self._exactly(length))
            if self._exactly(2) != b"\r\n":
                raise ProtocolError("an argument is longer than was said")
        return command

    def _number(self, kind: bytes, most: int) -> int:
        while (at := self._buffer.find(b"\r\n", 0, _LINE)) < 0:
            if len(self._buffer) >= _LINE:
                raise ProtocolError("a length has no end of line")
            self._more(_PIECE)
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 2]
        if line[:1] != kind or not line[1:].isdigit():
            raise ProtocolError(f"expected {kind.decode()} and a length, this came: {line[:30]!r}")
        number = int(line[1:])
        if number > most:
            raise ProtocolError(
                f"a command is too large: {number} where at most {most} are allowed"
            )
        return number

    def _exactly(self, count: int) -> bytes:
        # Memory is taken as bytes come in, not as they are announced.
        while len(self._buffer) < count:
            self._more(min(_PIECE, count + 2 - len(self._buffer)))
        found = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return found

    def _more(self, count: int) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"a command was not complete after {self._timeout:g} seconds")
        self._connection.settimeout(left)
        piece = self._connection.recv(max(count, 4096))
        if not piece:
            raise ProtocolError("the connection ended within a command")
        self._buffer += piece


def encode(reply: Reply) -> bytes:
    r"""A reply as bytes.

    Examples
    --------
    >>> encode([1, b"ab", None, Status(b"OK")])
    b'*4\r\n:1\r\n$2\r\nab\r\n$-1\r\n+OK\r\n'
    """
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, Status):
        return b"+%b\r\n" % bytes(reply)
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    return b"*%d\r\n" % len(reply) + b"".join(encode(part) for part in reply)


def encode_error(text: str) -> bytes:
    """An error as bytes: one line, with a code before it."""
    line = " ".join(text.split())
    if not line.split(" ")[0].isupper():
        line = f"ERR {line}"
    return b"-" + line.encode() + b"\r\n"
