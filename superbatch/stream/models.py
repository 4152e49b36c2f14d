"""Back to the simulation: versions of a model, each replacing the one before as a whole."""

from __future__ import annotations

import time

from superbatch.errors import ArgumentError, SuperbatchError
from superbatch.stream.address import connect, reason, shown


def _model(name: str) -> str:
    return f"sb:{{model:{name}}}"


def publish_model(address: str, name: str, blob: bytes, *, timeout: float = 60.0) -> int:
    """Make a model known to the producers.

    Parameters
    ----------
    address : str
    name : str
    blob : bytes
        Such as of ``torch.jit.save``, ``torch.export.save``, ONNX, or a state dict. It is not looked into.
    timeout : float
        Seconds to wait for the server.

    Returns
    -------
    int
        Its version: 1, 2, 3, ….

    Examples
    --------
    >>> from superbatch import stream
    >>> with stream.Server() as server:
    ...     stream.publish_model(server.address, "net", b"weights")
    ...     stream.latest_model(server.address, "net")
    1
    (1, b'weights')
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)) or not len(blob):
        raise ArgumentError(
            f"blob is {type(blob).__name__}: write bytes, such as those that torch.save writes to a BytesIO"
        )
    import redis

    key, client = _model(name), connect(address, timeout)

    def replace(pipe: redis.client.Pipeline) -> int:  # type: ignore[type-arg,unused-ignore]
        version = int(pipe.hget(key, "version") or 0) + 1  # type: ignore[arg-type,unused-ignore]
        pipe.multi()
        pipe.hset(key, mapping={"version": version, "blob": bytes(blob)})
        pipe.xadd(f"{key}:news", {"v": version}, maxlen=1, approximate=False)
        return version

    try:
        return int(client.transaction(replace, key, value_from_callable=True))
    except redis.RedisError as error:
        raise _unreachable(address, timeout, error) from error
    finally:
        client.close()


def latest_model(
    address: str, name: str, after: int = 0, wait: float = 0.0, *, timeout: float = 60.0
) -> tuple[int, bytes] | None:
    """The newest version of a model.

    Parameters
    ----------
    address : str
    name : str
    after : int
        A version that is known: only a newer one is wanted.
    wait : float
        Seconds to wait for one; the server tells at once, nothing is polled.
    timeout : float
        Seconds to wait for the server.

    Returns
    -------
    (int, bytes) or None
        Version and blob, of the same publication; None where there is none that is newer.
    """
    import redis

    key, client = _model(name), connect(address, max(timeout, wait + 5.0))
    deadline = time.monotonic() + wait
    try:
        while True:
            news = client.xrevrange(f"{key}:news", count=1)
            version, blob = client.hmget(key, "version", "blob")
            if version is not None and blob is not None and int(version) > after:
                return int(version), bytes(blob)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            at = news[0][0] if news else b"0"
            client.xread({f"{key}:news": at}, 1, max(1, int(1000 * left)))
    except redis.RedisError as error:
        raise _unreachable(address, timeout, error) from error
    finally:
        client.close()


def _unreachable(address: str, timeout: float, error: Exception) -> SuperbatchError:
    return SuperbatchError(
        f"the server at {shown(address)} did not answer within timeout={timeout:g} s ({reason(error)}): start it, or "
        f"give the address= of one that runs"
    )
