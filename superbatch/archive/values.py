"""What becomes of the values of a window: type, normalisation, NaN, masks, dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.errors import ArgumentError, shown
from superbatch.source import Late
from superbatch.window import Options

Decode = Callable[[npt.NDArray[Any], npt.NDArray[Any]], None]


@dataclass(frozen=True, eq=False)
class Values:
    """Turns raw values into those of a sample.

    Attributes
    ----------
    stored : dtype
        Of the decoded values.
    dtype : dtype
        Of the sample.
    mean, std : array or None
        Broadcastable to the sample.
    fill : float or None
        What takes the place of NaN, and of what is missing at an edge.
    mask : bool
    dropout : float
    raw : bool
        Whether values are taken as they are stored, without CF decoding.
    late : Late or None
        Normalisation that is left to whoever gives out the batch.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    mean: npt.NDArray[Any] | None = None
    std: npt.NDArray[Any] | None = None
    fill: float | None = None
    mask: bool = False
    dropout: float = 0.0
    raw: bool = False
    late: Late | None = None

    @property
    def plain(self) -> bool:
        """Whether decoded values are taken as they are."""
        nothing = self.mean is None and self.std is None and self.fill is None and not self.raw
        return nothing and not self.mask and self.dropout == 0 and self.dtype == self.stored

    @property
    def missing(self) -> float:
        """What stands for a value that is not there."""
        if self.fill is not None:
            return self.fill
        return float("nan") if self.dtype.kind == "f" else 0.0

    def finish(
        self,
        values: npt.NDArray[Any],
        out: npt.NDArray[Any],
        mask: npt.NDArray[np.bool_] | None,
        there: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Write decoded values to a sample.

        Parameters
        ----------
        values : array of ``stored``
        out : array of ``dtype``, the same shape
        mask : bool array, optional
            Where to say which values are there.
        there : bool array, optional
            Which values lie inside of the array; None for all.
        """
        with np.errstate(invalid="ignore"):
            np.copyto(out, values, casting="unsafe")
        if self.mean is not None:
            out -= self.mean
        if self.std is not None:
            out /= self.std
        gone = np.isnan(values) if values.dtype.kind == "f" else None
        if there is not None:
            gone = ~there if gone is None else gone | ~there
        # A NaN that an integer cannot hold would become anything.
        if gone is not None and (
            self.fill is not None or there is not None or out.dtype.kind != "f"
        ):
            np.copyto(out, self.missing, where=gone, casting="unsafe")
        if mask is not None:
            mask[...] = True if gone is None else ~gone

    def drop(self, out: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> None:
        """Write a sample without values."""
        out[...] = self.missing
        if mask is not None:
            mask[...] = False


def values_of(
    options: Options,
    name: str,
    stored: np.dtype[Any],
    dims: Sequence[str],
    shape: Sequence[int],
    data: Any,
) -> Values:
    """The treatment that the options of a window ask for.

    Parameters
    ----------
    options : Options
    name : str
        The modality, for errors.
    stored : dtype
        Of the decoded values.
    dims, shape
        Of the sample.
    data : DataArray or zarr.Array
        For matching the labels of ``mean`` and ``std``.
    """
    mean = _broadcast(options.mean, "mean", name, dims, shape, data)
    std = _broadcast(options.std, "std", name, dims, shape, data)
    if std is not None and not (std != 0).all():
        raise ArgumentError(
            f"std of {name!r} has a 0 in it: every standard deviation must be above 0"
        )
    dtype = options.dtype or stored
    if (mean is not None or std is not None) and dtype.kind != "f":
        if options.dtype is not None:
            raise ArgumentError(
                f"{name!r} is normalised, which {dtype} cannot hold: write dtype='float32'"
            )
        dtype = np.dtype(np.float32)
    fill = float(options.nan) if isinstance(options.nan, (int, float)) else None
    if fill is not None and dtype.kind != "f" and not fill.is_integer():
        raise ArgumentError(
            f"nan={fill} of {name!r} cannot be held by {dtype}: write a whole number"
        )
    mean = None if mean is None else mean.astype(dtype)
    std = None if std is None else std.astype(dtype)
    if options.normalize == "device" and (mean is not None or std is not None):
        whole = stored.kind != "f"  # numbers that have no NaN to stand for what is missing
        if whole and not options.mask and (options.dropout or options.edge == "fill"):
            raise ArgumentError(
                f"{name!r} travels as {stored} to be normalised on the device, where nothing tells what is "
                f"missing: write mask=True, or normalize='loader'"
            )
        return Values(
            stored,
            stored,
            mask=options.mask,
            dropout=float(options.dropout),
            raw=not options.decode,
            late=Late(mean, std, dtype, fill, f"{name}_mask" if whole and options.mask else None),
        )
    return Values(
        stored, dtype, mean, std, fill, options.mask, float(options.dropout), not options.decode
    )


def _broadcast(
    given: Any, what: str, name: str, dims: Sequence[str], shape: Sequence[int], data: Any
) -> npt.NDArray[Any] | None:
    if given is None:
        return None
    try:
        return _array(given, what, name, dims, shape, data)
    except (TypeError, ValueError, KeyError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"{what} of {name!r} is {shown(given)}, which makes no numbers ({type(error).__name__}): write a "
            f"number, or a DataArray of numbers by dimensions of the window"
        ) from error


def _array(
    given: Any, what: str, name: str, dims: Sequence[str], shape: Sequence[int], data: Any
) -> npt.NDArray[Any]:
    if hasattr(given, "dims") and hasattr(given, "transpose"):
        unknown = [d for d in given.dims if d not in dims]
        if unknown:
            raise ArgumentError(
                f"{what} of {name!r} has the dimension {unknown[0]!r}, which its window does not have: "
                f"write one with some of {', '.join(dims)}"
            )
        for dim in given.dims:
            # Labels say which channel a number belongs to, whatever the order.
            if dim in given.coords and dim in getattr(data, "coords", {}):
                given = given.sel({dim: data.coords[dim]})
        values = given.transpose(*(d for d in dims if d in given.dims)).values
        index = tuple(slice(None) if d in given.dims else None for d in dims)
        array = np.asarray(values, dtype=np.float64)[index]
    else:
        array = np.asarray(given, dtype=np.float64)
    try:
        np.broadcast_shapes(array.shape, tuple(shape))
        fits = np.broadcast_shapes(array.shape, tuple(shape)) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"{what} of {name!r} has shape {array.shape}, which does not broadcast against the window's "
            f"{tuple(shape)}: write a number, or a DataArray by its dimensions"
        )
    return array
