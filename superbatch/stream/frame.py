"""How a batch lies on the server: its arrays' bytes in pieces, and a line of JSON that says what they are.

Data only: nothing is pickled, nothing is evaluated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.errors import ArgumentError
from superbatch.stream import keys
from superbatch.stream.entry import Entry

# Servers with jemalloc are several times slower on larger values (measured on Redis 7.0).
PIECE = 1 << 20

Arrays = Mapping[str, npt.NDArray[Any]]
Fields = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def checked(arrays: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a batch, C-contiguous and little-endian.

    Raises
    ------
    ArgumentError
        No array, one without samples, of no numeric type, or of another number of samples.
    """
    if not arrays:
        raise ArgumentError("put() got no array: write put(data=x, target=y)")
    found = {}
    for name, given in arrays.items():
        array = np.asarray(given)
        if array.dtype.kind not in "biufc":
            raise ArgumentError(
                f"{name} is of type {array.dtype}: put numbers, such as float32 or int64"
            )
        if array.ndim == 0 or array.size == 0:
            raise ArgumentError(
                f"{name} has the shape {array.shape}: put an array whose first dimension counts samples, "
                f"one at the least"
            )
        found[name] = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    lengths = {name: len(array) for name, array in found.items()}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(f"the arrays have {lengths} samples: put as many of each")
    return found


def about(arrays: Arrays) -> str:
    """The fields of a batch as JSON."""
    return json.dumps({name: [a.shape[1:], a.dtype.str] for name, a in arrays.items()})


def fields_of(text: str) -> Fields:
    """The fields back from JSON.

    Raises
    ------
    ValueError
        It is none of ours.
    """
    fields = {}
    for name, (shape, dtype) in json.loads(text).items():
        kind = np.dtype(str(dtype))
        if kind.kind not in "biufc":
            raise ValueError(f"{name} is of type {kind}")
        fields[str(name)] = tuple(int(n) for n in shape), kind
    return fields


def pieces(arrays: Arrays) -> Iterator[tuple[int, int, memoryview]]:
    """Field, part and memory of each piece of C-contiguous arrays, in order."""
    for field, array in enumerate(arrays.values()):
        memory = array.reshape(-1).view(np.uint8).data
        for part, at in enumerate(range(0, len(memory), PIECE)):
            yield field, part, memory[at : at + PIECE]


def names(entry_fields: Fields, producer: str, run: str, number: int, samples: int) -> list[str]:
    """The keys of a batch's pieces, in order."""
    found = []
    for field, (shape, dtype) in enumerate(entry_fields.values()):
        size = samples * math.prod(shape) * dtype.itemsize
        found += [
            keys.piece(producer, run, number, field, part) for part in range(-(-size // PIECE))
        ]
    return found


def entry(producer: str, values: Mapping[bytes, bytes]) -> Entry:
    """What an entry of the index says."""
    fields = fields_of(values[b"f"].decode())
    samples = int(values[b"s"])
    size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in fields.values())
    return Entry(
        producer=producer,
        run=values[b"r"].decode(),
        number=int(values[b"n"]),
        samples=samples,
        nbytes=samples * size,
        fields=fields,
        time=float(values[b"t"]),
        last=values[b"l"] == b"1",
    )
