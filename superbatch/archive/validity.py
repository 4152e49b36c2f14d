"""Which windows along an axis may be drawn: gaps in time, periods, masks, weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.grid import Dimension
from superbatch.archive.starts import Starts
from superbatch.archive.times import gap_ends
from superbatch.errors import ArgumentError, shown

Valid = npt.ArrayLike | Callable[[npt.NDArray[Any]], Any] | Sequence[slice]


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
    when : dict of str to list of str
        Which anchors these were: the longest runs of neighbours, for people.
    """

    starts: Starts | None
    weights: npt.NDArray[np.float64] | None
    ruled_out: dict[str, int]
    when: dict[str, list[str]] = field(default_factory=dict)


def allowed(
    dimension: Dimension, valid: Valid | None = None, weights: npt.ArrayLike | None = None
) -> Allowed:
    """The starts along a dimension that respect gaps in time, ``valid`` and ``weights``.

    ``valid`` is a bool for each anchor, a function from the coordinate of the anchors to such bools, or
    a list of slices of the coordinate: a window has to lie inside one of them as a whole, so that
    a training and a validation period share nothing. What is windowed on time axes of its own counts.
    """
    fits = dimension.length - dimension.width + 1
    ruled_out: dict[str, int] = {}
    when: dict[str, list[str]] = {}
    gaps = gap_ends(dimension.name, dimension.coordinate)
    if gaps is None and valid is None and weights is None and not dimension.valid:
        return Allowed(None, None, ruled_out)
    keep = np.ones(max(fits, 0), dtype=bool)

    def apply(reason: str, mask: npt.NDArray[np.bool_]) -> None:
        lost = keep & ~mask
        ruled_out[reason] = int(lost.sum())
        if lost.any():
            when[reason] = longest(np.flatnonzero(lost) - dimension.low, dimension.coordinate)
        np.logical_and(keep, mask, out=keep)

    if gaps is not None:
        # A window is broken where a gap ends at one of its positions but the first.
        broken = np.zeros(dimension.length + 1, dtype=np.int64)
        broken[gaps + 1] = 1
        ends = np.cumsum(broken)
        inside = ends[dimension.width : dimension.width + fits] - ends[1 : 1 + fits]
        apply("gap", inside == 0)
    for reason, mask in dimension.valid.items():
        apply(reason, _by_start(dimension, mask, fits))
    if valid is not None:
        apply("valid", _mask(dimension, valid, fits))
    chosen: npt.NDArray[np.float64] | None = None
    if weights is not None:
        chosen = _weights(dimension, weights, fits)
        apply("weight 0", chosen > 0)
        chosen = chosen[keep]
    return Allowed(Starts(np.flatnonzero(keep).astype(np.int64)), chosen, ruled_out, when)


def longest(
    positions: npt.NDArray[np.int64], coordinate: npt.NDArray[Any] | None, most: int = 5
) -> list[str]:
    """The longest runs of neighbours among ascending positions, at least one, for people, in their order."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(positions) != 1) + 1, [len(positions)]])
    lengths = np.diff(edges)
    shown = np.sort(np.argsort(-lengths, kind="stable")[:most])

    def label(position: int) -> str:
        # A window may begin before the first anchor.
        known = coordinate is not None and 0 <= position < len(coordinate)
        text = str(coordinate[position] if coordinate is not None and known else position)
        return text.removesuffix(".000000000").removesuffix(":00")

    found = []
    for run in shown:
        first, last = positions[edges[run]], positions[edges[run + 1] - 1]
        ends = label(first) if first == last else f"{label(first)} to {label(last)}"
        found.append(f"{ends} ({lengths[run]})")
    if len(lengths) > most:
        found.append(f"and {len(lengths) - most} shorter runs")
    return found


def _mask(dimension: Dimension, valid: Valid, fits: int) -> npt.NDArray[np.bool_]:
    periods = _periods(valid)
    if periods:
        mask = np.zeros(fits, dtype=bool)
        index = _index(dimension.name, dimension.coordinate)
        others = [_index(dimension.name, axis) for axis, _, _ in dimension.reach]
        for period in periods:
            begin, end = _slice(index, period, dimension)
            inside = np.zeros(dimension.length, dtype=bool)
            inside[begin - dimension.low : max(0, end - dimension.high + 1)] = True
            for other, (_, first, last) in zip(others, dimension.reach, strict=True):
                begin, end = _slice(other, period, dimension)
                inside &= (first >= begin) & (last < end)
            mask |= _by_start(dimension, inside, fits)
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
    return _by_start(dimension, answer, fits)


def _by_start(
    dimension: Dimension, mask: npt.NDArray[np.bool_], fits: int
) -> npt.NDArray[np.bool_]:
    """What is said of anchors, said of the starts of windows."""
    anchors = np.arange(fits) - dimension.low
    usable: npt.NDArray[np.bool_] = (anchors >= 0) & (anchors < dimension.length)
    usable &= mask[np.clip(anchors, 0, dimension.length - 1)]
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


def _index(name: str, known: npt.NDArray[Any] | None) -> Any:
    import xarray as xr

    if known is None:
        return None
    return xr.DataArray(known, dims=(name,), coords={name: known}).indexes[name]


def _slice(index: Any, period: slice, dimension: Dimension) -> tuple[int, int]:
    if not isinstance(period, slice) or period.step is not None:
        raise ArgumentError(
            f"valid holds {shown(period)}: a list of periods holds slices without a step"
        )
    try:
        if index is None:
            begin, end, _ = period.indices(dimension.length)
            return begin, end
        found = index.slice_indexer(period.start, period.stop)
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"valid holds {shown(period)}, which cannot be found along {dimension.name!r} ({error}): write "
            f"slices of what its coordinate holds"
        ) from error
    return int(found.start), int(found.stop)
