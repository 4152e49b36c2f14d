"""Reading boxes of a Zarr array, on the calling thread as far as that is possible."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Hashable
from math import prod
from typing import Any

import numpy as np
import zarr
from zarr.buffer.cpu import NDBuffer

from superbatch.archive.chunks import Chunks
from superbatch.archive.read_direct import direct
from superbatch.archive.read_view import Box, View

# A shard's index is read once for all of it, so shards up to this many decoded bytes are read
# whole.
LARGEST_SHARD = 256 << 20


class ZarrReader:
    """Reads boxes of one view of a Zarr array.

    It pickles without the opened array: the process that unpickles it makes the array anew from its
    metadata, with the codec pipeline that is configured there, and without touching the store.
    """

    def __init__(self, array: zarr.Array[Any], view: View, name: str) -> None:
        refuse_unreadable(array, name)
        self.name = name
        self.view = view
        self._array: zarr.Array[Any] | None = array
        self._store_path = array.store_path
        self._metadata = array.metadata
        self._config = array.async_array.config
        self._chunk_shape = tuple(array.chunks)
        self._shards = None if array.shards is None else tuple(array.shards)
        self._direct = direct(array.metadata, array.store_path.store, array.store_path.path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_array": None}

    @property
    def array(self) -> zarr.Array[Any]:
        """The opened array."""
        if self._array is None:
            self._array = zarr.Array(
                zarr.AsyncArray(
                    metadata=self._metadata, store_path=self._store_path, config=self._config
                )
            )
        return self._array

    @property
    def raw_dtype(self) -> np.dtype[Any]:
        """Of the values that `read` gives."""
        return np.dtype(self.array.dtype).newbyteorder("=")

    @property
    def chunks(self) -> tuple[Chunks, ...]:
        """Borders of what is cheap to read, along each dimension of the view."""
        shape = self._metadata.shape
        unit = self._chunk_shape
        if self._shards is not None:
            bytes_in_shard = prod(self._shards) * self.raw_dtype.itemsize
            unit = self._shards if bytes_in_shard <= LARGEST_SHARD else unit
        stored = [Chunks.regular(n, size) for n, size in zip(shape, unit, strict=True)]
        return self.view.chunks(stored)

    @property
    def identity(self) -> Hashable:
        """Equal for two readers of the same array and view."""
        store = hashlib.sha256(pickle.dumps(self._store_path.store)).hexdigest()
        return ("zarr", store, self._store_path.path, self.view)

    def read(self, box: Box, out: np.ndarray[Any, Any]) -> None:
        """Read the raw values of a box of the view into `out`."""
        part = self.view.select(box)
        into = self.view.stored(out)
        try:
            self._read(part, into)
        except Exception as error:
            error.add_note(f"while reading {self.name} at {box} from {self.where()}")
            raise

    def _read(self, part: tuple[range, ...], into: np.ndarray[Any, Any]) -> None:
        if self._direct is not None:
            self._direct.read(part, into)
            return
        selection = tuple(slice(r.start, r.stop, r.step) for r in part)
        # zarrs writes nothing but contiguous memory in native byte order.
        plain = into if into.flags.c_contiguous else np.empty(into.shape, self.raw_dtype)
        buffer: Any = NDBuffer.from_ndarray_like(plain)  # type: ignore[arg-type]
        self.array.get_basic_selection(selection, out=buffer)
        if plain is not into:
            into[...] = plain

    def decoded_bytes(self, box: Box) -> int:
        """Bytes of the whole chunks that a box touches."""
        touched = 1
        for along, size in zip(self.view.select(box), self._chunk_shape, strict=True):
            if len(along) == 0:
                return 0
            spanned = along[-1] // size - along[0] // size + 1
            touched *= min(len(along), spanned)
        return touched * prod(self._chunk_shape) * self.raw_dtype.itemsize

    def _pipeline(self) -> str:
        return type(self.array.async_array.codec_pipeline).__name__

    def where(self) -> str:
        """The array's place, without what a URL may carry besides."""
        return f"{type(self._store_path.store).__name__} {self._store_path.path or '/'}"

    def describe(self) -> dict[str, Any]:
        """What is read, and how, for people."""
        return {
            "path": "zarr",
            "store": self.where(),
            "zarr_format": self._metadata.zarr_format,
            "chunks": self._chunk_shape,
            "shards": self._shards,
            "codecs": _codec_names(self._metadata),
            "pipeline": "direct" if self._direct is not None else self._pipeline(),
        }


def _codec_names(metadata: Any) -> list[str]:
    if metadata.zarr_format == 2:
        codecs = [*(metadata.filters or ()), metadata.compressor]
        return [codec.codec_id for codec in codecs if codec is not None]
    names = []
    for codec in metadata.codecs:
        names.append(codec.to_dict()["name"])
        names += [inner.to_dict()["name"] for inner in getattr(codec, "codecs", ())]
    return names


def refuse_unreadable(array: zarr.Array[Any], name: str) -> None:
    """Raise for an array that a loader process must not or cannot read.

    Raises
    ------
    TypeError
        Values that make no tensor, or that would have to be unpickled.
    ValueError
        A store that lives in this process only.
    """
    filters = getattr(array.metadata, "filters", None) or ()
    codecs = (*filters, getattr(array.metadata, "compressor", None))
    if any(getattr(codec, "codec_id", None) == "pickle" for codec in codecs):
        raise TypeError(f"{name} is stored as pickles, which are never loaded: write it as numbers")
    refuse_dtype(np.dtype(array.dtype), name)
    store: Any = array.store_path.store
    while hasattr(store, "_store"):
        store = store._store
    inner = getattr(store, "store", store)
    protocol = getattr(getattr(store, "fs", None), "protocol", ())
    if "Memory" in type(inner).__name__ or "memory" in protocol:
        raise ValueError(
            f"{name} is in a {type(store).__name__} that lives in this process only: "
            "write it to disk or to object storage, or hand over a NumPy-backed DataArray"
        )
    try:
        pickle.dumps(array.store_path.store)
    except Exception as error:
        raise ValueError(
            f"{name} is in a {type(store).__name__} that cannot be sent to a loader process "
            f"({type(error).__name__}: {error}): open it by its path or URL"
        ) from error


def refuse_dtype(dtype: np.dtype[Any], name: str) -> None:
    """Raise for values that make no tensor.

    Raises
    ------
    TypeError
        Anything but numbers, booleans and times.
    """
    if dtype.kind not in "biufcmM" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise TypeError(
            f"{name} holds {dtype} values, which make no tensor: "
            "hand over an array of numbers, booleans or datetime64"
        )
