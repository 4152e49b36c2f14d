"""What of an anchor can be asked for in the batch: times, places, sites, runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive import times
from superbatch.archive.anchors import Extra
from superbatch.archive.grid import Grid
from superbatch.archive.lookup import Lookup
from superbatch.errors import ArgumentError, shown


def extras(include: str | Iterable[str], grid: Grid) -> list[Extra]:
    """The extras of these names.

    Parameters
    ----------
    include : str or iterable of str
        A column of the anchor (``"time"``, ``"y"``, ``"site"``), a variable of the sites, or
        ``"<modality>_time"`` and ``"<modality>_run"`` of a forecast: its valid times and the times of its runs.
    grid : Grid

    Raises
    ------
    ArgumentError
        A name that there is none of, or values that no tensor can hold.
    """
    names = [include] if isinstance(include, str) else list(include)
    known = _known(grid)
    taken = {name for cut in grid.cuts for name in cut.fields()}
    found = []
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"include={shown(name)} is not known: write some of {', '.join(map(repr, known))}"
            )
        if name in taken:
            raise ArgumentError(
                f"include={shown(name)} is the name of a modality too: call the modality something else"
            )
        found.append(known[name])
    return found


def _known(grid: Grid) -> dict[str, Extra]:
    known: dict[str, Extra] = {}
    for number, dimension in enumerate(grid.dimensions):
        if dimension.coordinate is not None:
            known[dimension.name] = _extra(dimension.name, (number,), dimension.coordinate)
    for name, (columns, values) in grid.place.items():
        known.setdefault(name, _extra(name, columns, values))
    for cut in grid.cuts:
        if cut.points is not None:
            column = (cut.points.column,)
            name = f"{cut.name}_time"
            known[name] = Extra(name, Lookup(column), grid.times[cut.name])
            name = f"{cut.name}_run"
            known[name] = Extra(name, Lookup(column), grid.runs[cut.name], None, cut.points)
    return known


def _extra(name: str, columns: tuple[int, ...], values: npt.NDArray[Any]) -> Extra:
    if times.is_time(values):
        return Extra(name, Lookup(columns), since_1970(values))
    if values.dtype.kind in "biuf":
        return Extra(name, Lookup(columns), values)
    labels, number = np.unique(values.astype(str), return_inverse=True)
    return Extra(name, Lookup(columns), number.reshape(-1).astype(np.int64), labels)


def since_1970(coordinate: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Dates as int64 nanoseconds since 1970, in their own calendar."""
    return times.nanoseconds(coordinate) + times.epoch(coordinate)
