"""From windows to the axes of a plan: where each modality is cut around an anchor.

The anchor is a row of positions: one along the reference's time axis, and one along the axis of sites, or one
along each dimension of the reference that gives the place. Every windowed dimension of every array gets
a table from those positions to its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive import forecast, times
from superbatch.archive.arrays import Array, as_array
from superbatch.archive.chunks import Chunks
from superbatch.archive.crop import Cut
from superbatch.archive.grid import (
    Dimension,
    Grid,
    Modality,
    accumulated,
    known_dimensions,
    same,
    small,
)
from superbatch.archive.grid import (
    extent as extent_of,
)
from superbatch.archive.lookup import Lookup
from superbatch.archive.missing import missing, whole_windows
from superbatch.archive.pairs import Pairs
from superbatch.archive.sites import Sites
from superbatch.archive.space import Space
from superbatch.archive.times import is_time
from superbatch.archive.values import values_of
from superbatch.errors import ArgumentError
from superbatch.window import HERE, Forecast, Window

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Aligner:
    """Brings the windows of all modalities together.

    Parameters
    ----------
    windows : mapping of str to Window
        The first is the reference.
    sites : Sites, optional

    Raises
    ------
    ArgumentError
        A dimension that does not exist, a window longer than its array, arrays that cannot be
        brought together.
    """

    def __init__(self, windows: Mapping[str, Window], sites: Sites | None = None) -> None:
        self.sites = sites
        self.reference = next(iter(windows))
        self.arrays: list[Array] = []
        self.columns: dict[str, Dimension] = {}
        self.modalities: list[Modality] = []
        self.pairs = Pairs(self.columns)
        self.times: dict[str, Ints] = {}
        self.runs: dict[str, Ints] = {}
        self.place: dict[str, tuple[tuple[int, ...], npt.NDArray[Any]]] = {}
        numbers: dict[Any, int] = {}
        for name, window in windows.items():
            array = as_array(window.data, name)
            # Two modalities may share their values and yet be labelled differently.
            values = array.identity, array.dims
            if values not in numbers:
                numbers[values] = len(self.arrays)
                self.arrays.append(array)
            number = numbers[values]
            n = len(array.dims)
            modality = Modality(
                name, window, number, array, [None] * n, [0] * n, list(array.shape), []
            )
            known_dimensions(name, window, array)
            self.modalities.append(modality)
        first = self.modalities[0]
        if isinstance(first.window, Forecast):
            raise ArgumentError(
                f"{first.name!r} is a Forecast and cannot be the reference: write an array with a time axis first"
            )
        # The reference's time axis, in whose order anchors are.
        timed = [d for d in first.window.extents if is_time(first.array.coords.get(d))]
        self.time = timed[0] if timed else None
        self.space = Space(first, sites, self.columns, self.pairs, self.time)

    def align(self) -> Grid:
        """Find out where everything lies."""
        for modality in self.modalities:
            self._own_grid(modality)
        if self.sites is not None:
            self._add_sites()
        for modality in self.modalities:
            self._other_grids(modality)
        if not self.columns:
            raise ArgumentError(
                f"no dimension is windowed, so there is one sample only: name a dimension in Window(...), "
                f"such as {self.arrays[0].dims[0]}=1"
            )
        for modality in self.modalities:
            self._rule_out_nan(modality)
        self._places()
        names = list(self.columns)
        joint = None
        if self.pairs.names is not None and self.pairs.valid is not None:
            first, second = self.pairs.names
            joint = names.index(first), names.index(second), self.pairs.valid
        cuts = [self._cut(m) for m in self.modalities]
        masks = {f"{cut.name}_mask" for cut in cuts if cut.values.mask}
        for cut in cuts:
            if cut.name in masks:
                raise ArgumentError(
                    f"{cut.name!r} is the name of a mask too: call one of the two arrays something else"
                )
        return Grid(
            list(self.columns.values()),
            self.arrays,
            cuts,
            joint,
            self.pairs.reasons,
            self.pairs.when,
            self.times,
            self.runs,
            self.place,
        )

    # -- on the anchors' own grid ----------------------------------------------------------------

    def _own_grid(self, m: Modality) -> None:
        """Dimensions that are columns of the anchor themselves."""
        for dim, extent in m.window.extents.items():
            if extent is HERE or not self._is_own(m, dim):
                continue
            at = m.array.dims.index(dim)
            column = self.columns.get(dim)
            if column is None:
                column = Dimension(
                    dim,
                    m.array.shape[at],
                    m.array.chunks[at],
                    m.array.coords.get(dim),
                )
                self.columns[dim] = column
            low, high = extent_of(m.name, dim, extent, m.array.coords.get(dim))
            space = not is_time(m.array.coords.get(dim))
            if space and m.window.options.edge == "fill":
                m.put(at, Lookup((list(self.columns).index(dim),)), low, high - low)
                continue
            if high - low > column.length:
                raise ArgumentError(
                    f"the window of {m.name!r} is {high - low} long in {dim!r}, where the array has "
                    f"{column.length}: write {dim}={column.length} or less"
                )
            column.low, column.high = min(column.low, low), max(column.high, high)
            m.put(at, Lookup((list(self.columns).index(dim),)), low, high - low)

    def _is_own(self, m: Modality, dim: str) -> bool:
        """Whether a dimension is windowed by its own positions, not looked up from the anchor."""
        reference = self.modalities[0]
        if self.sites is not None and self.space.variable(m, dim) is not None:
            return False
        if m is reference:
            return True
        coordinate = m.array.coords.get(dim)
        if is_time(coordinate) and self.time is not None:
            return dim == self.time and same(m.array, reference.array, dim)
        if dim in (m.window.options.at or {}):
            return False
        if dim not in reference.window.extents:
            # A grid in another projection calls its dimensions as it likes.
            numeric = coordinate is not None and coordinate.dtype.kind in "iuf"
            return not (numeric and m.window.options.crs != reference.window.options.crs)
        if m.window.options.crs is not None or m.window.options.at or reference.window.options.at:
            return m.window.options.crs == reference.window.options.crs and same(
                m.array, reference.array, dim
            )
        if same(m.array, reference.array, dim):
            return True
        here, there = m.array.coords.get(dim), reference.array.coords.get(dim)
        if any(c is None or c.dtype.kind not in "iuf" for c in (here, there)):
            length = reference.array.shape[reference.array.dims.index(dim)]
            raise ArgumentError(
                f"{m.name!r} has {m.array.shape[m.array.dims.index(dim)]} positions in {dim!r} where "
                f"{self.reference!r} has {length}, and no numeric coordinates tell how they lie to each other: "
                f"give both arrays a coordinate {dim!r}, or select the part that both have"
            )
        return False

    # -- on other grids --------------------------------------------------------------------------

    def _add_sites(self) -> None:
        assert self.sites is not None
        sites, first = self.sites, self.modalities[0]
        for modality in self.modalities:
            self.space.check_placed(modality)
        dims = [d for d in first.window.extents if self.space.variable(first, d) is not None]
        keys = []
        for dim in dims:
            at = first.array.dims.index(dim)
            extent = first.window.extents[dim]
            position, _ = self.space.pixels_of_sites(first, dim)
            begin, end = extent_of(first.name, dim, extent, None)
            last = first.array.shape[at] - 1
            low = np.clip(position + begin, 0, last)
            high = np.clip(position + end - 1, 0, last)
            keys += [first.array.chunks[at].index(low), first.array.chunks[at].index(high)]
        # Sites whose windows lie in the same chunks are one group, and are loaded together.
        if keys:
            _, group = np.unique(np.stack(keys, axis=-1), axis=0, return_inverse=True)
            group = group.reshape(-1)
        else:
            group = np.zeros(len(sites.ids), dtype=np.int64)
        sites.sort(np.argsort(group, kind="stable"))
        if sites.dim in self.columns:
            raise ArgumentError(
                f"sites is along {sites.dim!r}, which windows are drawn along already: write {sites.dim}=sb.HERE "
                f"in their place, or rename it"
            )
        self.columns[sites.dim] = Dimension(
            sites.dim,
            len(sites.ids),
            Chunks.irregular(np.bincount(group).tolist()),
            sites.ids,
            0,
            1,
            site=True,
        )

    def _other_grids(self, m: Modality) -> None:
        """Dimensions whose positions are looked up from the anchor."""
        if isinstance(m.window, Forecast):
            self._forecast(m, m.window)
        pixel_dims = []
        for dim, extent in m.window.extents.items():
            at = m.array.dims.index(dim)
            if m.lookups[at] is not None:
                continue
            if extent is HERE:
                self._here(m, dim, at)
            elif is_time(m.array.coords.get(dim)) and self.time is not None:
                self._time(m, dim, at)
            else:
                pixel_dims.append(dim)
        if pixel_dims:
            self.space.place(m, pixel_dims)

    def _time(self, m: Modality, dim: str, at: int) -> None:
        assert self.time is not None
        column = self.columns[self.time]
        own, anchors = m.array.coords[dim], column.coordinate
        assert anchors is not None
        times.check_order(dim, own)
        low, high = extent_of(m.name, dim, m.window.extents[dim], own)
        stamps = times.nanoseconds(own, like=anchors)
        if len(stamps) > 1 and stamps[0] > stamps[-1]:
            raise ArgumentError(
                f"{dim!r} of {m.name!r} falls: sort it, such as with .sortby({dim!r})"
            )
        now = times.nanoseconds(anchors, like=anchors if anchors.dtype == object else None)
        position, fresh = times.latest(stamps, now)
        unbroken = times.unbroken(position, low, high, len(own), times.gap_ends(dim, own))
        column.rule_out(f"{m.name}: not there at that time", fresh & unbroken)
        column.reach.append((own, position + low, position + high - 1))
        index = list(self.columns).index(self.time)
        m.put(at, Lookup((index,), small(position)), low, high - low)

    def _forecast(self, m: Modality, window: Forecast) -> None:
        if self.time is None:
            raise ArgumentError(
                f"{m.name!r} is a Forecast, which needs a reference with a time axis: name it first, "
                f"with a window along its time"
            )
        column = self.columns[self.time]
        assert column.coordinate is not None
        index = list(self.columns).index(self.time)
        chosen = forecast.choose(
            window, m.name, m.array.dims, dict(m.array.coords), column.coordinate, index
        )
        for reason, valid in chosen.valid.items():
            column.rule_out(f"{m.name}: {reason}", valid)
        m.points = chosen.points
        stamps, place = np.unique(chosen.valid_times, return_inverse=True)
        place = place.reshape(chosen.valid_times.shape)
        column.reach.append(
            (times.dates(stamps, column.coordinate), place.min(axis=1), place.max(axis=1))
        )
        zero = times.epoch(column.coordinate)
        self.times[m.name], self.runs[m.name] = chosen.valid_times + zero, chosen.runs + zero

    def _here(self, m: Modality, dim: str, at: int) -> None:
        if self.sites is None:
            raise ArgumentError(
                f"Window of {m.name!r} has {dim}=sb.HERE, which needs sites= to say which sites there are"
            )
        known = m.array.coords.get(dim)
        if known is None:
            raise ArgumentError(
                f"Window of {m.name!r} has {dim}=sb.HERE, but {dim!r} has no coordinate that names its sites"
            )
        position, there = self.sites.find(known, f"Window of {m.name!r}, {dim}=sb.HERE")
        column = self.columns[self.sites.dim]
        column.rule_out(f"{m.name}: no such site", there)
        index = list(self.columns).index(self.sites.dim)
        m.put(at, Lookup((index,), small(position)), 0, 1)
        m.dropped.append(at)

    # -- NaN, places, cuts -----------------------------------------------------------------------

    def _rule_out_nan(self, m: Modality) -> None:
        """Leave out anchors whose series holds a NaN, where that is asked for."""
        here = list(m.dropped)
        nan = m.window.options.nan
        if nan != "drop" and not (nan is None and here):
            return
        timed = [
            i
            for i, dim in enumerate(m.array.dims)
            if m.lookups[i] is not None and is_time(m.array.coords.get(dim))
        ]
        boxed = [
            dim
            for i, dim in enumerate(m.array.dims)
            if m.lookups[i] is not None and i not in timed and i not in here
        ]
        if m.points is not None or boxed or len(timed) > 1 or len(here) > 1 or not (timed or here):
            raise ArgumentError(
                f'nan="drop" of {m.name!r} needs a series, windowed along time and HERE alone: write '
                f'nan="keep", and leave samples out with reject='
            )
        gone = missing(m.array, (*timed, *here))
        names = list(self.columns)
        if here:
            lookup = m.lookups[here[0]]
            assert lookup is not None
            assert lookup.table is not None
            if not np.array_equal(lookup.table, np.arange(gone.shape[-1])):
                gone = gone[..., lookup.table]
        if not timed:
            self.columns[names[self._column(m, here[0])]].rule_out(f"{m.name}: NaN", ~gone)
            return
        lookup = m.lookups[timed[0]]
        assert lookup is not None
        time = self.columns[names[lookup.columns[0]]]
        position = np.arange(time.length) if lookup.table is None else lookup.table.astype(np.int64)
        low = m.offset[timed[0]]
        whole = whole_windows(gone.reshape(len(gone), -1), position, low, low + m.size[timed[0]])
        if not here:
            time.rule_out(f"{m.name}: NaN", whole[:, 0])
            return
        self.pairs.rule_out((time.name, names[self._column(m, here[0])]), whole, f"{m.name}: NaN")

    @staticmethod
    def _column(m: Modality, dim: int) -> int:
        lookup = m.lookups[dim]
        assert lookup is not None
        return lookup.columns[0]

    def _places(self) -> None:
        """Where anchors are, for those who want it in the batch."""
        if self.sites is not None:
            index = (list(self.columns).index(self.sites.dim),)
            for name, values in self.sites.places.items():
                self.place[name] = index, values
            self.place[self.sites.dim] = index, self.sites.ids
            return
        for number, column in enumerate(self.columns.values()):
            if column.coordinate is not None and column.coordinate.dtype.kind in "iuf":
                self.place[column.name] = (number,), column.coordinate

    def _cut(self, m: Modality) -> Cut:
        dims = [d for d in m.array.dims if d not in {m.array.dims[i] for i in m.dropped}]
        shape = [n for i, n in enumerate(m.size) if i not in m.dropped]
        if m.points is not None:
            step = m.array.dims[m.points.step_dim]
            shape[dims.index(m.array.dims[m.points.run_dim])] = m.points.run.shape[2]
            shape.pop(dims.index(step))
            dims.remove(step)
        differences = None
        if isinstance(m.window, Forecast) and m.window.accumulated is not False:
            differences = accumulated(m.window, m.name, m.array, dims, shape)
        return Cut(
            m.name,
            m.number,
            tuple(m.lookups),
            tuple(m.offset),
            tuple(m.size),
            tuple(m.dropped),
            tuple(dims),
            tuple(shape),
            m.points,
            differences,
            m.window.options.edge == "fill",
            values_of(
                m.window.options,
                m.name,
                m.array.dtype if m.window.options.decode else m.array.raw_dtype,
                dims,
                shape,
                m.window.data,
            ),
        )


def align(windows: Mapping[str, Window], sites: Sites | None = None) -> Grid:
    """Bring the windows of all modalities together; see :class:`Aligner`."""
    return Aligner(windows, sites).align()
