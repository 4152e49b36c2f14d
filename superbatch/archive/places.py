"""Places: which pixel of a grid is nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.errors import ArgumentError, shown

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Places are looked up in pieces, so that memory stays small.
_PIECE = 1 << 22


def nearest(coordinate: npt.NDArray[Any], places: Floats) -> tuple[Ints, Bools]:
    """The position of the nearest pixel centre along an axis that rises or falls, evenly or not.

    A place half-way between two is given to the one with the lower coordinate.

    Returns
    -------
    position : int64 array
    inside : bool array
        Whether the place lies within half a pixel of the axis; NaN does not.
    """
    axis = np.asarray(coordinate, dtype=np.float64)
    order = np.argsort(axis, kind="stable")
    rising = axis[order]
    if len(rising) == 1:
        return np.zeros(places.shape, np.int64), np.isfinite(places)
    middles = (rising[1:] + rising[:-1]) / 2
    found = np.searchsorted(middles, places, side="left")
    half = np.diff(rising) / 2
    inside = (places >= rising[0] - half[0]) & (places <= rising[-1] + half[-1])
    return order[found].astype(np.int64), inside


def nearest_2d(
    y: npt.NDArray[Any], x: npt.NDArray[Any], place_y: Floats, place_x: Floats
) -> tuple[Ints, Ints, Bools]:
    """The nearest pixel of a grid whose places are given by 2-d coordinates.

    Returns
    -------
    row, column : int64 arrays
    inside : bool array
        Whether the place is no farther from the pixel's centre than the pixel's neighbours are.
    """
    points = np.stack([np.ravel(y), np.ravel(x)], axis=-1).astype(np.float64)
    good = np.flatnonzero(np.isfinite(points).all(axis=1))
    if not len(good):
        raise ArgumentError("the 2-d coordinates hold no finite place")
    wanted = np.stack([np.ravel(place_y), np.ravel(place_x)], axis=-1).astype(np.float64)
    finite = np.isfinite(wanted).all(axis=1)
    flat = np.zeros(len(wanted), dtype=np.int64)
    distance = np.full(len(wanted), np.inf)
    flat[finite], distance[finite] = _search(points[good], wanted[finite])
    flat = good[flat]
    row, column = np.unravel_index(flat, y.shape)
    inside = distance <= _spacing(np.asarray(y, np.float64), np.asarray(x, np.float64))[row, column]
    shape = np.shape(place_y)
    return row.reshape(shape), column.reshape(shape), inside.reshape(shape)


def transform(crs_from: Any, crs_to: Any, y: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Places in another projection."""
    if crs_from == crs_to:
        return y, x
    if crs_from is None or crs_to is None:
        known = crs_to if crs_from is None else crs_from
        raise ArgumentError(
            f"crs={shown(known)} is that of one side only: write crs= of the reference and of the window, or "
            f"sites.attrs['crs'] where there are sites"
        )
    try:
        import pyproj
    except ImportError as error:
        raise ArgumentError("crs= needs pyproj: pip install 'superbatch[geo]'") from error
    try:
        change = pyproj.Transformer.from_crs(crs_from, crs_to, always_xy=True)
    except (pyproj.exceptions.CRSError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"crs={shown(crs_from)} or crs={shown(crs_to)} is not known: write one that pyproj knows, such as "
            f'"EPSG:27700"'
        ) from error
    new_x, new_y = change.transform(x, y)
    return np.where(np.isfinite(new_y), new_y, np.nan), np.where(np.isfinite(new_x), new_x, np.nan)


def _search(points: Floats, wanted: Floats) -> tuple[Ints, Floats]:
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        pass
    else:
        distance, found = cKDTree(points).query(wanted)
        return found.astype(np.int64), distance
    found = np.empty(len(wanted), dtype=np.int64)
    distance = np.empty(len(wanted))
    size = max(1, _PIECE // len(points))
    for begin in range(0, len(wanted), size):
        part = wanted[begin : begin + size]
        squares = ((part[:, None, :] - points[None, :, :]) ** 2).sum(axis=-1)
        found[begin : begin + size] = squares.argmin(axis=1)
        distance[begin : begin + size] = np.sqrt(squares.min(axis=1))
    return found, distance


def _spacing(y: Floats, x: Floats) -> Floats:
    """How far the farther neighbour of each pixel is."""
    far = np.zeros(y.shape)
    for axis in range(2):
        if y.shape[axis] < 2:
            continue
        step = np.hypot(np.diff(y, axis=axis), np.diff(x, axis=axis))
        edge = [(0, 0), (0, 0)]
        edge[axis] = (1, 1)
        padded = np.pad(step, edge, mode="edge")
        low, high = [slice(None)] * 2, [slice(None)] * 2
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        with np.errstate(invalid="ignore"):
            far = np.fmax(far, np.fmax(padded[tuple(low)], padded[tuple(high)]))
    return far
