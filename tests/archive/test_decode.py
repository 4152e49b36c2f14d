"""Decoding chunks in place, against Zarr's own reading of the same store."""

from __future__ import annotations

import importlib.util
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs import zstd
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

from superbatch.archive.arrays import as_array
from superbatch.archive.decode import layout, zstd_content_size
from superbatch.archive.read_direct import pieces

zarrs = importlib.util.find_spec("zarrs") is not None
SHAPE = (23, 17, 10)
CHUNKS = (5, 17, 4)
BOXES = [
    ((0, 23), (0, 17), (0, 10)),
    ((5, 15), (0, 17), (0, 4)),
    ((3, 21), (2, 15), (1, 9)),
    ((20, 23), (0, 17), (8, 10)),
    ((22, 23), (16, 17), (9, 10)),
]


def positions(dtype="int16", shape=SHAPE):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def compare(stored, direct=True):
    """Read boxes of an array, through `superbatch` and through Zarr; here, and as a loader does."""
    array = as_array(stored, "field")
    assert (array.describe()["pipeline"] == "direct") is direct
    expected = [stored[tuple(slice(*ends) for ends in box)] for box in BOXES]
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"} if zarrs else {}):
        in_loader = pickle.loads(pickle.dumps(array))
        for box, values in zip(BOXES, expected, strict=True):
            out = np.full([high - low for low, high in box], 99, array.raw_dtype)
            assert array.read(box, out) is out
            np.testing.assert_array_equal(out, values)
            np.testing.assert_array_equal(in_loader.read(box, np.zeros_like(out)), values)
            # As a view with its dimensions in another order is read.
            turned = np.zeros_like(out, order="F")
            in_loader._reader.read(box, turned)
            np.testing.assert_array_equal(turned, values)


V2 = {
    "zstd": numcodecs.Zstd(3),
    "zstd-checksum": numcodecs.Zstd(3, checksum=True),
    "blosc-zstd": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.SHUFFLE),
    "blosc-lz4-bits": numcodecs.Blosc("lz4", 1, numcodecs.Blosc.BITSHUFFLE),
    "lz4": numcodecs.LZ4(),
    "none": None,
}
V3 = {
    "zstd": ZstdCodec(level=3),
    "zstd-checksum": ZstdCodec(level=3, checksum=True),
    "blosc": BloscCodec(cname="lz4"),
    "none": None,
}


@pytest.mark.parametrize("codec", V2)
@pytest.mark.parametrize("dtype", ["int16", "float32", "bool", "complex64", "uint8", "float64"])
def test_format_2(tmp_path, codec, dtype):
    stored = zarr.create_array(
        tmp_path / "a", data=positions(dtype), chunks=CHUNKS, zarr_format=2, compressors=V2[codec]
    )
    compare(stored)


@pytest.mark.parametrize("codec", V3)
@pytest.mark.parametrize("dtype", ["int16", "float32", "bool", "complex128", "int8", "float16"])
def test_format_3(tmp_path, codec, dtype):
    stored = zarr.create_array(
        tmp_path / "a", data=positions(dtype), chunks=CHUNKS, compressors=V3[codec]
    )
    compare(stored)


@pytest.mark.parametrize("codec", V3)
@pytest.mark.parametrize("where", ["start", "end"])
@pytest.mark.parametrize("checked", [True, False])
def test_shards(tmp_path, codec, where, checked):
    inner = [BytesCodec(), V3[codec]] if V3[codec] else [BytesCodec()]
    stored = zarr.create(
        shape=SHAPE,
        chunks=(10, 34, 8),
        dtype="int16",
        store=tmp_path / "a",
        fill_value=7,
        codecs=[
            ShardingCodec(
                chunk_shape=(5, 17, 4),
                codecs=inner,
                index_codecs=[BytesCodec(), Crc32cCodec()] if checked else [BytesCodec()],
                index_location=where,
            )
        ],
    )
    stored[:] = positions()
    compare(stored)
    # A chunk of fill values is not stored, and neither is a shard of them.
    stored[0:5, :, 0:4] = 7
    stored[10:20] = 7
    compare(stored)


@pytest.mark.parametrize("fill", [0, 7, None])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_that_are_not_there(tmp_path, fill, zarr_format):
    if fill is None and zarr_format == 3:
        pytest.skip("format 3 always has a fill value")
    stored = zarr.create(
        shape=SHAPE,
        chunks=CHUNKS,
        dtype="int16",
        store=tmp_path / "a",
        fill_value=fill,
        zarr_format=zarr_format,
    )
    stored[5:10] = positions()[5:10]
    compare(stored)


FALLBACK = {
    "order F": {"zarr_format": 2, "order": "F"},
    "filter": {"zarr_format": 2, "filters": [numcodecs.Delta("int16")]},
    "gzip 2": {"zarr_format": 2, "compressors": numcodecs.GZip()},
    "gzip 3": {"compressors": GzipCodec()},
    "transpose": {"filters": [TransposeCodec(order=(2, 0, 1))]},
    "checksum": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "big end": {"serializer": BytesCodec(endian="big")},
}


@pytest.mark.parametrize("how", FALLBACK)
def test_what_needs_the_pipeline_gets_it(tmp_path, how):
    stored = zarr.create_array(
        tmp_path / "a", shape=SHAPE, dtype="int16", chunks=CHUNKS, fill_value=0, **FALLBACK[how]
    )
    stored[:] = positions()
    compare(stored, direct=False)


def test_big_endian_values_come_in_native_order(tmp_path):
    stored = zarr.create_array(
        tmp_path / "a", data=positions(">i2"), chunks=CHUNKS, zarr_format=2, compressors=None
    )
    compare(stored, direct=False)
    assert as_array(stored, "field").raw_dtype == np.dtype("<i2")


def test_every_known_layout_is_complete():
    meta = zarr.create_array({}, shape=(4,), dtype="int16", zarr_format=2, order="F").metadata
    assert layout(meta) is not None, "one axis has no order"


def one_chunk(folder, encoded, codec="zstd"):
    """An array of one chunk of 64 int16 values, whose stored bytes are replaced."""
    stored = zarr.create_array(
        folder / "a", data=np.ones(64, "i2"), chunks=(64,), compressors=V3[codec]
    )
    (folder / "a/c/0").write_bytes(bytes(encoded))
    return as_array(stored, "field")


def frame_without_size(values: np.ndarray) -> bytes:
    """A Zstandard frame of one raw block that does not state its size (RFC 8878)."""
    data = values.tobytes()
    head = b"\x28\xb5\x2f\xfd" + bytes([0]) + bytes([0x50])
    return head + (len(data) << 3 | 1).to_bytes(3, "little") + data


def test_a_zstd_frame_that_does_not_state_its_size(tmp_path):
    values = np.arange(64, dtype="i2")
    frame = frame_without_size(values)
    assert zstd_content_size(np.frombuffer(frame, np.uint8)) is None
    np.testing.assert_array_equal(one_chunk(tmp_path, frame).read(((0, 64),)), values)


def test_a_zstd_chunk_of_two_frames(tmp_path):
    values = np.arange(64, dtype="i2")
    frames = zstd.compress(values[:40].tobytes()) + zstd.compress(values[40:].tobytes())
    np.testing.assert_array_equal(one_chunk(tmp_path, frames).read(((0, 64),)), values)


@pytest.mark.parametrize("size", [0, 1, 127, 255, 256, 257, 65_535, 65_792, 200_000])
def test_the_size_that_a_zstd_frame_states(size):
    frame = zstd.compress(bytes(size))
    stated = zstd_content_size(np.frombuffer(frame, np.uint8))
    assert stated in ((size, None) if size == 0 else (size,))


SHORT = np.arange(63, dtype="i2")
LONG = np.arange(65, dtype="i2")


@pytest.mark.parametrize("values", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("codec", ["zstd", "blosc", "none", "unsized"])
def test_a_chunk_of_another_size_is_an_error(tmp_path, values, codec):
    encoded, used = {
        "zstd": (zstd.compress(values.tobytes()), "zstd"),
        "blosc": (numcodecs.Blosc().encode(values), "blosc"),
        "none": (values.tobytes(), "none"),
        "unsized": (frame_without_size(values), "zstd"),
    }[codec]
    with pytest.raises((ValueError, RuntimeError)) as caught:
        one_chunk(tmp_path, encoded, used).read(((0, 64),))
    assert "in chunk c/0" in caught.value.__notes__


def test_a_corrupt_chunk_names_itself(tmp_path):
    values = np.random.default_rng(0).integers(0, 9, 64).astype("i2")
    frame = bytearray(zstd.compress(values.tobytes(), checksum=True))
    frame[-1] ^= 255
    with pytest.raises(RuntimeError, match="checksum") as caught:
        one_chunk(tmp_path, bytes(frame)).read(((3, 9),))
    assert "in chunk c/0" in caught.value.__notes__
    assert any("field at ((3, 9),)" in note for note in caught.value.__notes__)


def test_a_truncated_chunk_is_an_error(tmp_path):
    frame = zstd.compress(np.arange(64, dtype="i2").tobytes())
    with pytest.raises(RuntimeError):
        one_chunk(tmp_path, frame[:-9]).read(((0, 64),))
    with pytest.raises(RuntimeError):
        one_chunk(tmp_path / "empty", b"").read(((0, 64),))


def shard_of_four(tmp_path):
    stored = zarr.create_array(
        tmp_path / "a", data=np.arange(64, dtype="i2") + 1, chunks=(16,), shards=(64,)
    )
    return as_array(stored, "field"), tmp_path / "a/c/0"


def test_a_corrupt_shard_index_is_an_error(tmp_path):
    array, file = shard_of_four(tmp_path)
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="checksum") as caught:
        array.read(((0, 64),))
    assert "in shard c/0" in caught.value.__notes__


def test_a_truncated_shard_is_an_error(tmp_path):
    array, file = shard_of_four(tmp_path)
    file.write_bytes(file.read_bytes()[-68:])
    with pytest.raises((EOFError, RuntimeError)) as caught:
        array.read(((0, 64),))
    assert "in chunk c/0" in caught.value.__notes__
    file.write_bytes(b"short")
    with pytest.raises(ValueError, match="index has 5 bytes"):
        array.read(((0, 64),))


def test_an_array_that_is_gone_is_not_read_as_fill_values(tmp_path):
    stored = zarr.create_array(tmp_path / "a", data=positions(), chunks=CHUNKS)
    array = as_array(stored, "field")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(FileNotFoundError, match=r"zarr\.json"):
        array.read(BOXES[0])


def test_steps_decode_only_the_chunks_they_touch():
    found = pieces(range(3, 40, 11), 5)
    assert [piece.chunk for piece in found] == [0, 2, 5, 7]
    taken = [5 * p.chunk + k for p in found for k in range(5)[p.inside]]
    assert taken == list(range(3, 40, 11))
    assert [k for p in found for k in range(4)[p.outside]] == [0, 1, 2, 3]


def test_threads_do_not_share_memory(tmp_path):
    """Threads that read different boxes at the same time get each its own values."""
    data = positions(shape=(40, 30, 20))
    stored = zarr.create_array(tmp_path / "a", data=data, chunks=(7, 30, 9), shards=(14, 30, 18))
    array = as_array(stored, "field")
    start = threading.Barrier(4, timeout=60)

    def read(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(50):
            box = tuple(
                tuple(sorted(rng.choice(n + 1, 2, replace=False).tolist())) for n in data.shape
            )
            np.testing.assert_array_equal(array.read(box), data[tuple(slice(*b) for b in box)])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(read, seed) for seed in range(4)]:
            done.result(timeout=60)


def test_codec_names_of_numcodecs_in_format_3(tmp_path):
    stored = zarr.create_array(tmp_path / "a", data=positions(), chunks=CHUNKS, compressors=None)
    file = tmp_path / "a/zarr.json"
    metadata = json.loads(file.read_text())
    metadata["codecs"].append({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}})
    file.write_text(json.dumps(metadata))
    for chunk in (tmp_path / "a/c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(bytes(numcodecs.LZ4().encode(chunk.read_bytes())))
    with pytest.warns(UserWarning, match="Numcodecs"):
        stored = zarr.open_array(tmp_path / "a", mode="r")
    compare(stored)
