"""Tensors as values of a plain server, and the metadata of datasets. Data only: nothing is unpickled."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.errors import SuperbatchError

DTYPES = {
    b"FLOAT": "<f4",
    b"DOUBLE": "<f8",
    b"INT8": "<i1",
    b"INT16": "<i2",
    b"INT32": "<i4",
    b"INT64": "<i8",
    b"UINT8": "<u1",
    b"UINT16": "<u2",
}
_NAMES = list(DTYPES)
_MAGIC = b"SBT1"
_STRINGS = 7
_MOST_DIMENSIONS = 32


class TensorError(SuperbatchError):
    """Bytes that are no tensor, or no tensor's metadata."""


def pack(dtype: bytes, dims: list[bytes], blob: bytes) -> bytes:
    """A value of a plain server: magic, number of the dtype, shape, and the elements in C order.

    Raises
    ------
    TensorError
        A dtype that SmartRedis does not have, a shape that is not positive, a blob of another length.
    """
    if dtype not in DTYPES:
        raise TensorError(f"{dtype[:20]!r} is no dtype: write one of {b' '.join(_NAMES).decode()}")
    if not 1 <= len(dims) <= _MOST_DIMENSIONS or not all(
        d.isdigit() and len(d) < 19 and int(d) for d in dims
    ):
        raise TensorError(
            f"a tensor needs 1 to {_MOST_DIMENSIONS} positive dimensions, not {dims[:4]}"
        )
    shape = [int(d) for d in dims]
    expected = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if expected != len(blob):
        raise TensorError(f"a tensor of shape {shape} has {expected} bytes, {len(blob)} came")
    head = struct.pack(f"<4sBB{len(shape)}Q", _MAGIC, _NAMES.index(dtype), len(shape), *shape)
    return head + blob


def unpack(value: bytes) -> tuple[bytes, list[int], bytes]:
    """Dtype, shape and elements of a value that :func:`pack` has made.

    Raises
    ------
    TensorError
        Any other value.
    """
    if len(value) < 6 or value[:4] != _MAGIC or value[4] >= len(_NAMES):
        raise TensorError("the key does not hold a tensor")
    number, count = value[4], value[5]
    begin = 6 + 8 * count
    if not 1 <= count <= _MOST_DIMENSIONS or len(value) < begin:
        raise TensorError("the key does not hold a whole tensor")
    shape = list(struct.unpack_from(f"<{count}Q", value, 6))
    if math.prod(shape) * np.dtype(DTYPES[_NAMES[number]]).itemsize != len(value) - begin:
        raise TensorError("the key does not hold a whole tensor")
    return _NAMES[number], shape, value[begin:]


def to_array(value: bytes) -> npt.NDArray[Any]:
    """The tensor in a value as an array, read-only."""
    dtype, shape, blob = unpack(value)
    return np.frombuffer(blob, DTYPES[dtype]).reshape(shape)


def strings(blob: bytes) -> list[str]:
    """The strings of a metadata field: a type byte, then each with its length before it.

    Raises
    ------
    TensorError
    """
    if not blob or blob[0] != _STRINGS:
        raise TensorError("a metadata field does not hold strings")
    found, at = [], 1
    while at < len(blob):
        if at + 8 > len(blob):
            raise TensorError("a metadata field is cut off")
        (length,) = struct.unpack_from("<Q", blob, at)
        at += 8
        if length > len(blob) - at:
            raise TensorError("a metadata field is cut off")
        try:
            found.append(blob[at : at + length].decode())
        except UnicodeDecodeError as error:
            raise TensorError("a metadata field holds bytes that are no text") from error
        at += length
    return found
