"""Addresses of servers, and clients for them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from superbatch.errors import ArgumentError, SuperbatchError
from superbatch.errors import shown as brief
from superbatch.redact import hide

# Arguments longer than this are sent from where they are.
_BUFFER = 6000


def url(address: str) -> str:
    """The address as a URL that redis-py takes.

    Examples
    --------
    >>> url("localhost:6379"), url("/run/valkey.sock"), url("rediss://:secret@host:6380/0")
    ('redis://localhost:6379', 'unix:///run/valkey.sock', 'rediss://:secret@host:6380/0')
    """
    if not isinstance(address, str) or not address or not address.isprintable():
        raise _wrong(address)
    if "://" in address:
        return address
    return f"unix://{address}" if "/" in address else f"redis://{address}"


def _wrong(address: object) -> ArgumentError:
    return ArgumentError(
        f'address={hide(brief(address))} is no server: write "host:port", the path of a socket, or a redis:// URL'
    )


def connect(address: str, timeout: float) -> Any:
    """A client that gives up after ``timeout`` seconds without an answer.

    Parameters
    ----------
    address : str
        ``host:port``, a socket's path, or a URL: ``redis://``, ``rediss://`` (TLS), ``unix://``, with
        ``user:password@`` where the server asks for it; ``redis+cluster://`` for one node of a cluster.
    timeout : float
        Seconds.

    Raises
    ------
    SuperbatchError
        redis-py is not installed.
    """
    try:
        import redis
    except ImportError as error:
        raise SuperbatchError(
            "superbatch.stream needs redis-py: pip install 'superbatch[stream]'"
        ) from error
    from redis._parsers import Encoder
    from redis.connection import PythonRespSerializer

    options = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    where = url(address)
    try:
        urlsplit(where).netloc.encode("idna")
        if where.startswith("redis+cluster://"):
            one = "redis" + where.removeprefix("redis+cluster")
            return redis.RedisCluster.from_url(one, **options)
        # The packer that comes with hiredis copies large values, at a quarter of the speed (measured: 16 MiB,
        # redis-py 8.1, hiredis 3.5).
        packer = PythonRespSerializer(_BUFFER, Encoder("utf-8", "strict", False).encode)
        return redis.Redis.from_url(where, command_packer=packer, **options)
    except ValueError as error:
        raise _wrong(address) from error


def is_cluster(client: Any) -> bool:
    """Whether the keys of a client are spread over several servers."""
    from redis.cluster import RedisCluster

    return isinstance(client, RedisCluster)


def shown(address: str) -> str:
    """The address for an error: without a password."""
    return hide(url(address))


def reason(error: BaseException) -> str:
    """What a client's exception says, as a part of a sentence."""
    return (
        hide(" ".join(str(error).split()).rstrip(".").replace(". ", ", ")) or type(error).__name__
    )
