"""From the bytes of a stored chunk straight into memory that is there already.

Covers what most archives are made of: one Zstandard, Blosc or LZ4 codec, or none, over
little-endian values in C order, sharded or not. For anything else :func:`layout` gives None, and
the array is read through Zarr's own codec pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import google_crc32c
import numcodecs  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Decompress = Callable[[Bytes, Bytes], None]

# A chunk that a shard does not hold is marked by this offset and length (Zarr v3, sharding codec).
_ABSENT = 2**64 - 1
_CRC_BYTES = 4


@dataclass(frozen=True)
class Layout:
    """How chunks of one array are stored.

    Attributes
    ----------
    shape : tuple of int
        Of every stored chunk; those at the end of an axis are stored whole.
    dtype : numpy.dtype
        Of the stored values.
    fill : scalar
        What a chunk that is not there is filled with.
    codec : str
        "zstd", "blosc", "lz4" or "none".
    shard : Shard or None
        How chunks lie in shards, where they do.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: Any
    codec: str
    shard: Shard | None = None

    def decompress(self, data: Bytes, out: Bytes) -> None:
        """Decompress a chunk's bytes into `out`, which they must fill exactly.

        Raises
        ------
        ValueError
            The chunk does not hold as many bytes as the metadata says.
        Exception
            What the codec raises for bytes that are corrupt.
        """
        _DECOMPRESS[self.codec](data, out)


@dataclass(frozen=True)
class Shard:
    """How the chunks of a shard are found.

    Attributes
    ----------
    grid : tuple of int
        Chunks in a shard along each axis.
    at_end : bool
        Whether the index is at the end of the shard rather than at its beginning.
    checked : bool
        Whether the index ends with a CRC32C checksum.
    """

    grid: tuple[int, ...]
    at_end: bool
    checked: bool

    @property
    def index_bytes(self) -> int:
        """Size of the encoded index."""
        return 16 * prod(self.grid) + (_CRC_BYTES if self.checked else 0)

    def index(self, data: Bytes) -> NDArray[np.int64]:
        """First byte and length of each chunk, of shape ``(*grid, 2)``; -1 for one that is absent.

        Raises
        ------
        ValueError
            The index is too short, or does not match its checksum.
        """
        if len(data) != self.index_bytes:
            raise ValueError(f"the shard index has {len(data)} bytes, not {self.index_bytes}")
        raw = data.tobytes()
        if self.checked:
            raw, stored = raw[:-_CRC_BYTES], int.from_bytes(raw[-_CRC_BYTES:], "little")
            found = google_crc32c.value(raw)
            if found != stored:
                raise ValueError(
                    f"the shard index has the checksum {found:#010x}, not {stored:#010x}"
                )
        # Reading an absent chunk's mark as signed gives -1.
        return np.frombuffer(raw, "<i8").reshape(*self.grid, 2)


def layout(metadata: Any) -> Layout | None:
    """How an array's chunks are stored, or None where that needs Zarr's own pipeline.

    Parameters
    ----------
    metadata : zarr.core.metadata.ArrayV2Metadata or ArrayV3Metadata
        Of the array.
    """
    if sys.byteorder != "little":
        return None
    found = _layout2(metadata) if metadata.zarr_format == 2 else _layout3(metadata)
    if found is None or found.dtype.kind not in "biufc" or found.dtype.byteorder == ">":
        return None
    return found


def _layout2(metadata: Any) -> Layout | None:
    if metadata.filters or (metadata.order != "C" and len(metadata.shape) > 1):
        return None
    codec = "none"
    if metadata.compressor is not None:
        codec = getattr(metadata.compressor, "codec_id", "")
    if codec not in _DECOMPRESS:
        return None
    dtype = metadata.dtype.to_native_dtype()
    # A format 2 array without a fill value is read as zeros, as Zarr does.
    fill = dtype.type(0) if metadata.fill_value is None else metadata.fill_value
    return Layout(tuple(metadata.chunks), dtype, fill, codec)


def _layout3(metadata: Any) -> Layout | None:
    grid = metadata.chunk_grid.to_dict()
    if grid["name"] != "regular" or metadata.storage_transformers:
        return None
    shape = tuple(int(n) for n in grid["configuration"]["chunk_shape"])
    dtype = metadata.data_type.to_native_dtype()
    codecs = [codec.to_dict() for codec in metadata.codecs]
    shard = None
    if len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed":
        options = codecs[0]["configuration"]
        inner = tuple(int(n) for n in options["chunk_shape"])
        checked = _checked(options["index_codecs"])
        if checked is None or any(n % m for n, m in zip(shape, inner, strict=True)):
            return None
        per = tuple(n // m for n, m in zip(shape, inner, strict=True))
        shard = Shard(per, _text(options["index_location"]) == "end", checked)
        shape, codecs = inner, [_as_dict(codec) for codec in options["codecs"]]
    codec = _chain(codecs, dtype)
    if codec is None:
        return None
    return Layout(shape, dtype, metadata.fill_value, codec, shard)


def _chain(codecs: list[Mapping[str, Any]], dtype: np.dtype[Any]) -> str | None:
    """The codec of a chain of the "bytes" codec and at most one compressor."""
    if not codecs or codecs[0]["name"] != "bytes" or len(codecs) > 2:
        return None
    if dtype.itemsize > 1 and _endian(codecs[0]) != "little":
        return None
    codec = codecs[1]["name"].removeprefix("numcodecs.") if len(codecs) == 2 else "none"
    return codec if codec in _DECOMPRESS else None


def _checked(codecs: Any) -> bool | None:
    """Whether a shard's index is checked; None where it is encoded in a way that is not known."""
    found = [_as_dict(codec) for codec in codecs]
    if not found or found[0]["name"] != "bytes" or _endian(found[0]) != "little":
        return None
    rest = [codec["name"] for codec in found[1:]]
    return {(): False, ("crc32c",): True}.get(tuple(rest))


def _as_dict(codec: Any) -> Mapping[str, Any]:
    return codec if isinstance(codec, Mapping) else codec.to_dict()


def _endian(codec: Mapping[str, Any]) -> str:
    return _text((codec.get("configuration") or {}).get("endian"))


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


_zstd_codec = numcodecs.Zstd()
_blosc_codec = numcodecs.Blosc()


def _zstd(data: Bytes, out: Bytes) -> None:
    # numcodecs leaves the rest of a buffer as it was where the frame holds less than that.
    if zstd_content_size(data) == out.nbytes:
        _zstd_codec.decode(data, out)
    else:
        _fill(out, _zstd_codec.decode(data))


def _blosc(data: Bytes, out: Bytes) -> None:
    # Bytes 4 to 8 of a Blosc header are the decompressed size.
    _expect(int.from_bytes(data[4:8].tobytes(), "little"), out)
    _blosc_codec.decode(data, out)


def _lz4(data: Bytes, out: Bytes) -> None:
    # numcodecs puts the decompressed size before the LZ4 block.
    _expect(int.from_bytes(data[:4].tobytes(), "little"), out)
    numcodecs.LZ4().decode(data, out)


def _none(data: Bytes, out: Bytes) -> None:
    _fill(out, data)


def _fill(out: Bytes, data: Any) -> None:
    values = np.frombuffer(data, np.uint8)
    _expect(values.nbytes, out)
    out[:] = values


def _expect(found: int, out: Bytes) -> None:
    if found != out.nbytes:
        raise ValueError(f"the chunk holds {found} bytes, not the {out.nbytes} of its metadata")


def zstd_content_size(data: Bytes) -> int | None:
    """Decompressed size that the first Zstandard frame of `data` states, or None.

    Writers that stream leave it out. The format is that of RFC 8878, section 3.1.1.1.
    """
    head = data[:18].tobytes()
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if width == 0 or len(head) < at + width:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


_DECOMPRESS: Mapping[str, Decompress] = {
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
    "none": _none,
}
