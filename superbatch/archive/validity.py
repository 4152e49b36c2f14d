"""Which windows along an axis may be drawn: gaps in time, periods, masks, weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.align import Dimension, is_time
from superbatch.archive.starts import Starts
from superbatch.errors import ArgumentError

Valid = npt.ArrayLike | Callable[[npt.NDArray[Any]], Any] | Sequence[slice]
# A step longer than this many usual steps is a gap. Months differ by less, a missing stamp by more.
_GAP = 1.5


@dataclass
class Allowed:
    """The starts that may be drawn along an axis, and why the others may not.

    Attributes
    ----------
    starts : Starts or None
        None: all that fit.
    weights : float64 array or None
    ruled_out : dict of str to int
        How many starts each reason has ruled out, counted one after the other.
    """

    starts: Starts | None
    weights: npt.NDArray[np.float64] | None
    ruled_out: dict[str, int]


def allowed(
    dimension: Dimension, valid: Valid | None = None, weights: npt.ArrayLike | None = None
) -> Allowed:
    """The starts along a dimension that respect gaps in time, ``valid`` and ``weights``.

    ``valid`` is a bool for each anchor, a function from the coordinate of the anchors to such bools, or
    a list of slices of the coordinate: a window has to lie inside one of them as a whole, so that
    a training and a validation period share nothing.
    """
    fits = dimension.length - dimension.width + 1
    ruled_out: dict[str, int] = {}
    gaps = gap_ends(dimension)
    if gaps is None and valid is None and weights is None:
        return Allowed(None, None, ruled_out)
    keep = np.ones(max(fits, 0), dtype=bool)

    def apply(reason: str, mask: npt.NDArray[np.bool_]) -> None:
        ruled_out[reason] = int((keep & ~mask).sum())
        np.logical_and(keep, mask, out=keep)

    if gaps is not None:
        # A window is broken where a gap ends at one of its positions but the first.
        broken = np.zeros(dimension.length + 1, dtype=np.int64)
        broken[gaps + 1] = 1
        ends = np.cumsum(broken)
        inside = ends[dimension.width : dimension.width + fits] - ends[1 : 1 + fits]
        apply("gap", inside == 0)
    if valid is not None:
        apply("valid", _mask(dimension, valid, fits))
    chosen: npt.NDArray[np.float64] | None = None
    if weights is not None:
        chosen = _weights(dimension, weights, fits)
        apply("weight 0", chosen > 0)
        chosen = chosen[keep]
    return Allowed(Starts(np.flatnonzero(keep).astype(np.int64)), chosen, ruled_out)


def gap_ends(dimension: Dimension) -> npt.NDArray[np.int64] | None:
    """Positions whose predecessor is more than one step away; None where there is no gap.

    Raises
    ------
    ArgumentError
        Stamps that repeat or go back, with the first few of them.
    """
    coordinate = dimension.coordinate
    if coordinate is None or not is_time(coordinate) or len(coordinate) < 2:
        return None
    difference = np.diff(coordinate)
    if difference.dtype == object:
        steps = np.array([d.total_seconds() for d in difference])
    else:
        steps = difference.astype("timedelta64[ns]").astype(np.int64)
    if (steps < 0).all():
        steps = -steps
    wrong = np.flatnonzero(steps <= 0)
    if len(wrong):
        stamps = ", ".join(str(coordinate[i + 1]) for i in wrong[:3])
        kinds = [
            k for k, n in (("repeat", (steps == 0).sum()), ("go back", (steps < 0).sum())) if n
        ]
        raise ArgumentError(
            f"{len(wrong)} stamps of {dimension.name!r} {' or '.join(kinds)}, the first at position "
            f"{int(wrong[0]) + 1} ({stamps}): sort and drop duplicates first, such as with "
            f".sortby({dimension.name!r}).drop_duplicates({dimension.name!r})"
        )
    ends = np.flatnonzero(steps > _GAP * np.median(steps)) + 1
    return ends if len(ends) else None


def _mask(dimension: Dimension, valid: Valid, fits: int) -> npt.NDArray[np.bool_]:
    anchors = np.arange(fits) - dimension.low
    periods = _periods(valid)
    if periods:
        mask = np.zeros(fits, dtype=bool)
        index = _index(dimension)
        for period in periods:
            begin, end = _slice(index, period, dimension)
            mask[begin : max(begin, end - dimension.width + 1)] = True
        return mask
    if callable(valid):
        known = dimension.coordinate
        stamps = np.arange(dimension.length) if known is None else known
        answer, of = _array(valid(stamps)), "valid(...) returned"
    else:
        answer, of = _array(valid), "valid has"
    if answer.shape != (dimension.length,) or answer.dtype != bool:
        raise ArgumentError(
            f"{of} {answer.dtype} of shape {answer.shape}: write one bool for each of the "
            f"{dimension.length} positions of {dimension.name!r}, or a list of slices"
        )
    usable: npt.NDArray[np.bool_] = (anchors >= 0) & (anchors < dimension.length)
    usable &= answer[np.clip(anchors, 0, dimension.length - 1)]
    return usable


def _array(values: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # lists of different lengths
        return np.asarray(None)


def _weights(dimension: Dimension, weights: npt.ArrayLike, fits: int) -> npt.NDArray[np.float64]:
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(weights).__name__
        raise ArgumentError(
            f"weights is a {kind} that holds more than numbers: write one number for each of the "
            f"{dimension.length} positions of {dimension.name!r}"
        ) from None
    if given.shape != (dimension.length,):
        raise ArgumentError(
            f"weights has shape {given.shape}: write one number for each of the {dimension.length} "
            f"positions of {dimension.name!r}"
        )
    if not np.isfinite(given).all() or (given < 0).any():
        bad = given[~(np.isfinite(given) & (given >= 0))][0]
        raise ArgumentError(
            f"weights has {bad} in it: every weight must be a finite number, 0 or more"
        )
    # Only proportions matter; sums of the largest numbers there are would be infinite.
    given = given / max(given.max(initial=0.0), np.finfo(float).tiny)
    anchors = np.arange(fits) - dimension.low
    usable = (anchors >= 0) & (anchors < dimension.length)
    return np.where(usable, given[np.clip(anchors, 0, dimension.length - 1)], 0.0)


def _periods(valid: Valid) -> Sequence[slice]:
    """The periods, where that is what was given."""
    if isinstance(valid, (list, tuple)) and valid and isinstance(valid[0], slice):
        return valid
    return ()


def _index(dimension: Dimension) -> Any:
    import xarray as xr

    known = dimension.coordinate
    if known is None:
        return None
    return xr.DataArray(known, dims=(dimension.name,), coords={dimension.name: known}).indexes[
        dimension.name
    ]


def _slice(index: Any, period: slice, dimension: Dimension) -> tuple[int, int]:
    if not isinstance(period, slice) or period.step is not None:
        raise ArgumentError(
            f"valid holds {period!r}: a list of periods holds slices without a step"
        )
    try:
        if index is None:
            begin, end, _ = period.indices(dimension.length)
            return begin, end
        found = index.slice_indexer(period.start, period.stop)
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"valid holds {period!r}, which cannot be found along {dimension.name!r}: {error}"
        ) from error
    return int(found.start), int(found.stop)
