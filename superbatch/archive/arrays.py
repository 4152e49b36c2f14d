"""One picklable object for each array that a user hands over, read as fast as its codec allows."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import xarray as xr
import zarr
from dask.base import is_dask_collection

from superbatch.archive.chunks import Chunks
from superbatch.archive.read_cf import Decoder, decoder, plain
from superbatch.archive.read_config import configure
from superbatch.archive.read_dask import sources_dask, unwrap_dask
from superbatch.archive.read_values import DaskReader, NumpyReader, XarrayReader
from superbatch.archive.read_view import Box, NotPlain, View
from superbatch.archive.read_xarray import Unwrapped, sources, unwrap
from superbatch.archive.read_zarr import ZarrReader, refuse_dtype, refuse_unreadable
from superbatch.redact import hide_in

__all__ = ["Array", "as_array", "configure"]

# An array in memory of so many bytes is worth a word where its values came out of a store.
_LARGE = 1_000_000_000


class Reader(Protocol):
    """Reads boxes of raw values."""

    @property
    def raw_dtype(self) -> np.dtype[Any]: ...
    @property
    def chunks(self) -> tuple[Chunks, ...]: ...
    @property
    def identity(self) -> Hashable: ...
    def read(self, box: Box, out: np.ndarray[Any, Any]) -> None: ...
    def decoded_bytes(self, box: Box) -> int: ...
    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False, repr=False)
class Array:
    """An array that windows are cut from; make one with :func:`as_array`.

    It is cheap to pickle: it holds coordinates, but data only where the user handed over data that
    is in memory.

    Attributes
    ----------
    name : str
        Name of the modality.
    dims : tuple of str
        Names of the dimensions.
    shape : tuple of int
        Positions along each dimension.
    dtype : numpy.dtype
        Of the values that samples hold.
    raw_dtype : numpy.dtype
        Of what :meth:`read` gives.
    chunks : tuple of Chunks
        Along each dimension, the borders of what is cheap to read: shards where there are shards
        of at most 256 MB, else chunks.
    identity : hashable
        Equal for two arrays that view the same stored values in the same way, so that one read
        serves both.
    coords : mapping of str to array
        The 1-d coordinate of each dimension that has one.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    raw_dtype: np.dtype[Any]
    chunks: tuple[Chunks, ...]
    identity: Hashable
    coords: Mapping[str, np.ndarray[Any, Any]]
    _reader: Reader = field()
    _decoder: Decoder = field()

    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Read raw values.

        Parameters
        ----------
        box : tuple of (int, int)
            First position and the position after the last one, along each dimension.
        out : array, optional
            Where the values go, of the box's shape and of `raw_dtype`, C-contiguous. Reading into
            memory that has been used before is up to twice as fast as into new memory.

        Returns
        -------
        array
            `out`, or a new array.

        Raises
        ------
        ValueError
            A box outside of the array, or an `out` that does not fit.
        Exception
            What the store or the codec raises, as it is, with a note that says where.
        """
        shape = self._shape(box)
        if out is None:
            out = np.empty(shape, self.raw_dtype)
        elif out.shape != shape or out.dtype != self.raw_dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"{self.name}: out must be C-contiguous, of shape {shape} and type "
                f"{self.raw_dtype}, not of shape {out.shape} and type {out.dtype}"
            )
        if out.size:
            try:
                self._reader.read(tuple(box), out)
            except Exception as error:
                hide_in(error)
                raise
        return out

    def decode(self, raw: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        """Turn raw values into the values that samples hold.

        Parameters
        ----------
        raw : array of `raw_dtype`
            Any part of what :meth:`read` gave.
        out : array of `dtype`
            Where the decoded values go, of the same shape.
        """
        self._decoder(raw, out)

    @property
    def copies(self) -> bool:
        """Whether decoded values are the raw ones, to the last bit."""
        return self._decoder.copies

    def decoded_bytes(self, box: Box) -> int:
        """Bytes that must be decompressed to read a box: those of whole chunks."""
        self._shape(box)
        return self._reader.decoded_bytes(tuple(box))

    def share(self) -> int | None:
        """Put values that are in memory into shared memory; the descriptor for loaders to inherit."""
        return self._reader.share() if isinstance(self._reader, NumpyReader) else None

    def describe(self) -> dict[str, Any]:
        """How the array is read, for people: the path taken, the store, chunks and codecs."""
        return {
            **self._reader.describe(),
            "shape": self.shape,
            "raw_dtype": str(self.raw_dtype),
            "dtype": str(self.dtype),
        }

    def _shape(self, box: Box) -> tuple[int, ...]:
        if len(box) != len(self.shape) or not all(
            0 <= low <= high <= n for (low, high), n in zip(box, self.shape, strict=True)
        ):
            raise ValueError(f"{self.name}: the box {box} is not within the shape {self.shape}")
        return tuple(high - low for low, high in box)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{dim}: {n}" for dim, n in zip(self.dims, self.shape, strict=True))
        return f"Array({self.name!r}, {{{sizes}}}, {self.dtype})"


def as_array(data: Any, name: str) -> Array:
    """Make an :class:`Array` of what a user hands over. No values are read, coordinates are.

    Parameters
    ----------
    data : xarray.DataArray or zarr.Array
        A DataArray may come from ``xarray.open_zarr`` with any ``chunks=``, may be sliced, flipped
        or transposed, or may be in memory. A ``zarr.Array`` is read as it is stored, without CF
        decoding.
    name : str
        What to call it in errors.

    Returns
    -------
    Array
        Integers that are packed by ``scale_factor`` and ``add_offset`` become float32. Times are
        int64 nanoseconds. Values are those that the DataArray itself shows, with one exception:
        zeros stay zeros where Zarr format 2 metadata has ``fill_value`` 0, its default, and no
        attribute names 0 as ``_FillValue`` or ``missing_value``. Values in memory, and those that
        come through xarray or Dask, are taken as they are; a warning says so where it shows.

    Raises
    ------
    TypeError
        Not a DataArray or ``zarr.Array``; values that make no tensor.
    ValueError
        A store that no other process can open; an array without dimensions.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> sat = xr.DataArray(np.arange(12, dtype="int16").reshape(4, 3), dims=("time", "x"))
    >>> array = as_array(sat[::-1], "sat")
    >>> array.read(((0, 2), (1, 3)))
    array([[10, 11],
           [ 7,  8]], dtype=int16)
    """
    if isinstance(data, zarr.Array):
        return _of_zarr(data, name)
    if isinstance(data, xr.DataArray):
        return _of_xarray(data, name)
    hint = "hand over an xarray.DataArray or a zarr.Array"
    if isinstance(data, xr.Dataset):
        variables = ", ".join(map(str, list(data.data_vars)[:5])) or "none"
        hint = f'hand over one of its variables, such as ds["name"]; it has: {variables}'
    elif isinstance(data, zarr.Group):
        hint = 'hand over one of its arrays, such as group["name"]'
    raise TypeError(f"{name} is a {type(data).__module__}.{type(data).__qualname__}: {hint}")


def _of_zarr(data: zarr.Array[Any], name: str) -> Array:
    names: Any = getattr(data.metadata, "dimension_names", None)
    if names is None:
        names = data.attrs.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or len(names) != data.ndim:
        names = [None] * data.ndim
    dims = tuple(f"dim_{axis}" if dim is None else str(dim) for axis, dim in enumerate(names))
    reader = ZarrReader(data, View.whole(data.shape), name)
    return _build(name, dims, data.shape, {}, reader, plain(reader.raw_dtype))


def _of_xarray(data: xr.DataArray, name: str) -> Array:
    dims = tuple(str(dim) for dim in data.dims)
    lazy = data.variable._data
    reader: Reader
    try:
        found = unwrap_dask(lazy) if is_dask_collection(lazy) else unwrap(lazy)
    except NotPlain:
        refuse_dtype(data.dtype, name)
        _warn_of_hidden_zeros(data, name)
        for stored in sources_dask(lazy) if is_dask_collection(lazy) else sources(lazy):
            refuse_unreadable(stored, name)
        if data.variable._in_memory:  # also after .values, when xarray's wrappers are still there
            _warn_of_loaded(data, name)
            reader = NumpyReader(data.values)
        elif is_dask_collection(lazy):
            reader = DaskReader(lazy, name)
        else:
            reader = XarrayReader(data, name)
        return _build(name, dims, data.shape, _coords(data), reader, plain(reader.raw_dtype))
    reader = ZarrReader(found.stored, found.view, name)
    decode = decoder(reader.raw_dtype, found.steps, _zero_is_data(found))
    refuse_dtype(decode.dtype, name)
    if found.view.shape != data.shape:
        raise AssertionError(f"{name}: {found.view} does not show {data.shape}")
    return _build(name, dims, data.shape, _coords(data), reader, decode)


def _build(
    name: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    coords: Mapping[str, np.ndarray[Any, Any]],
    reader: Reader,
    decode: Decoder,
) -> Array:
    if not shape:
        raise ValueError(f"{name} has no dimensions: windows need at least one")
    return Array(
        name=name,
        dims=dims,
        shape=tuple(shape),
        dtype=decode.dtype,
        raw_dtype=decode.raw_dtype,
        chunks=reader.chunks,
        identity=reader.identity,
        coords=coords,
        _reader=reader,
        _decoder=decode,
    )


def _coords(data: xr.DataArray) -> dict[str, np.ndarray[Any, Any]]:
    return {
        str(dim): np.asarray(data.coords[dim].values)
        for dim in data.dims
        if dim in data.coords and data.coords[dim].dims == (dim,)
    }


def _zero_is_data(found: Unwrapped) -> bool:
    """Whether a fill value of 0 comes from Zarr format 2's own default and nowhere else."""
    metadata, attributes = found.stored.metadata, found.stored.attrs
    if metadata.zarr_format != 2 or metadata.fill_value is None or metadata.fill_value != 0:
        return False
    missing: Any = attributes.get("missing_value", ())
    return "_FillValue" not in attributes and 0 not in np.ravel(missing)


def _warn_of_loaded(data: xr.DataArray, name: str) -> None:
    """Warn where much came out of chunks into memory, perhaps unawares."""
    if data.nbytes >= _LARGE and data.encoding.get("chunks"):
        warnings.warn(
            f"{name} was loaded into memory, {data.nbytes / 1e9:.1f} GB, as .load() or .values do: samples are drawn "
            "from there, and no chunk is read; hand over what xr.open_zarr gave before that, to load in the background",
            stacklevel=4,
        )


def _warn_of_hidden_zeros(data: xr.DataArray, name: str) -> None:
    """Warn where values come through xarray and it took Zarr's default for a missing value."""
    encoding = data.encoding
    # Only variables of Zarr format 3 have a serializer.
    format2 = "compressors" in encoding and "serializer" not in encoding
    if format2 and encoding.get("_FillValue") == 0 and data.dtype.kind == "f":
        warnings.warn(
            f"{name} shows stored zeros as NaN, since xarray takes the fill_value of Zarr format 2 "
            "for a missing value: open the store with use_zarr_fill_value_as_mask=False"
            " if zeros are data",
            stacklevel=4,
        )
