"""From stored values to the values that samples hold: CF packing, fill values, times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import xarray.coding.variables as coding

Step = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]

# Values decoded at a time where single precision would lose digits: 64 KB of doubles stay in cache.
_BLOCK = 8192


@dataclass(frozen=True)
class Decoder:
    """Decodes raw crops, element by element.

    Attributes
    ----------
    raw_dtype : numpy.dtype
        Of what is stored, in this machine's byte order.
    dtype : numpy.dtype
        Of the decoded values.
    steps : tuple of callable
        Element-wise functions that are applied one after the other before what follows.
    fills : tuple
        Raw values that stand for "missing": they become NaN.
    scale, offset : float or None
        Decoded is ``raw * scale + offset``.
    """

    raw_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    steps: tuple[Step, ...] = ()
    fills: tuple[Any, ...] = ()
    scale: float | None = None
    offset: float | None = None
    _double: bool = field(default=False)

    @property
    def copies(self) -> bool:
        """Whether there is nothing to do but copy."""
        return (
            not self.steps
            and not self.fills
            and self.scale is None
            and self.offset is None
            and self.dtype == self.raw_dtype
        )

    def __call__(self, raw: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        """Decode `raw` into `out`, an array of the same shape."""
        values = raw
        for step in self.steps:
            values = step(values)
        if self.dtype == np.int64 and values.dtype.kind in "mM":
            values = values.astype(f"{values.dtype.kind}8[ns]").view(np.int64)
        if self.scale is None and self.offset is None:
            np.copyto(out, values, casting="unsafe")
        else:
            self._unpack(values, out)
        for fill in self.fills:
            np.copyto(out, np.nan, where=values == fill)

    def _unpack(self, values: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        wide = np.dtype(np.float64) if self._double else out.dtype
        scale = wide.type(1 if self.scale is None else self.scale)
        offset = None if self.offset is None else wide.type(self.offset)
        if wide == out.dtype:
            np.multiply(values, scale, out=out, dtype=wide, casting="unsafe")
            if offset is not None:
                np.add(out, offset, out=out)
            return
        # Both steps in double precision, rounded once: a large offset would cancel digits
        # otherwise.
        rows = max(1, _BLOCK // max(1, values[0].size)) if values.ndim and values.size else 1
        for low in range(0, len(values) if values.ndim else 1, rows):
            part = slice(low, low + rows) if values.ndim else ()
            double = np.multiply(values[part], scale, dtype=wide)
            if offset is not None:
                double += offset
            out[part] = double


def plain(dtype: np.dtype[Any]) -> Decoder:
    """Values as they are stored; times become int64 nanoseconds."""
    native = dtype.newbyteorder("=")
    return Decoder(native, np.dtype(np.int64) if native.kind in "mM" else native)


def decoder(
    raw_dtype: np.dtype[Any], steps: Sequence[tuple[Step, np.dtype[Any]]], zero_is_data: bool
) -> Decoder:
    """The decoder for the element-wise steps that xarray put around a stored array.

    Packed data (``scale_factor``, ``add_offset``) of any integer type becomes float32, as does
    data of at most 16 bits that only has fill values; wider data that only has fill values keeps
    the float64 that xarray gives it, which holds each value exactly. Any other step is applied as
    it is.

    Parameters
    ----------
    raw_dtype : numpy.dtype
        Of what is stored.
    steps : sequence of (callable, numpy.dtype)
        Each function with the type that it gives, innermost first.
    zero_is_data : bool
        Whether a fill value of 0 is no more than Zarr's own default.
    """
    raw = raw_dtype.newbyteorder("=")
    kept = list(steps)
    result = kept[-1][1].newbyteorder("=") if kept else raw
    if result.kind in "mM":
        # Times: xarray's own functions, which know calendars and units.
        functions = tuple(_zeros_kept(step) if zero_is_data else step for step, _ in kept)
        return Decoder(raw, np.dtype(np.int64), functions)

    scale = offset = None
    packed = False
    if kept and _is(kept[-1][0], "_scale_offset_decoding"):
        options = kept.pop()[0].keywords  # type: ignore[attr-defined]
        scale, offset = (_number(options[key]) for key in ("scale_factor", "add_offset"))
        packed = True
    fills: tuple[Any, ...] = ()
    masked = False
    if kept and _is(kept[-1][0], "_apply_mask") and _gives_nan(kept[-1][0]):
        options = kept.pop()[0].keywords  # type: ignore[attr-defined]
        fills = tuple(sorted(options["encoded_fill_values"]))
        if zero_is_data:
            fills = tuple(fill for fill in fills if fill != 0)
        masked = True
    inner = kept[-1][1].newbyteorder("=") if kept else raw
    double = False
    if packed and inner.kind in "iuf":
        result = np.dtype(np.float64 if inner == np.float64 else np.float32)
        double = inner.itemsize > 2 and inner.kind in "iu"
    elif masked and not packed and not fills:
        result = inner
    elif not (packed or masked):
        return Decoder(raw, result, tuple(step for step, _ in kept))
    return Decoder(raw, result, tuple(step for step, _ in kept), fills, scale, offset, double)


def _is(step: Step, name: str) -> bool:
    """Whether a step is this function of xarray's coding module, with keywords only."""
    known = getattr(coding, name, None)
    return isinstance(step, partial) and known is not None and step.func is known and not step.args


def _zeros_kept(step: Step) -> Step:
    """The same step, without 0 among the values that it masks."""
    if not _is(step, "_apply_mask"):
        return step
    options = step.keywords  # type: ignore[attr-defined]
    fills = [fill for fill in options["encoded_fill_values"] if fill != 0]
    return partial(step.func, **{**options, "encoded_fill_values": fills})  # type: ignore[attr-defined]


def _gives_nan(step: Step) -> bool:
    value = step.keywords.get("decoded_fill_value")  # type: ignore[attr-defined]
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _number(value: Any) -> float | None:
    return None if value is None else float(np.asarray(value).reshape(()))
