"""Where windows lie in space: boxes of pixels around the places of the anchors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from superbatch.archive import places
from superbatch.archive.grid import (
    Dimension,
    Modality,
    coordinates,
    nearest_pixels,
    north_east,
    small,
)
from superbatch.archive.grid import extent as extent_of
from superbatch.archive.grid import fits as check_fits
from superbatch.archive.lookup import Lookup
from superbatch.archive.pairs import Pairs
from superbatch.archive.sites import Sites
from superbatch.archive.times import is_time
from superbatch.errors import ArgumentError
from superbatch.window import HERE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Space:
    """Places windows by sites, or by the pixels of the reference.

    Parameters
    ----------
    reference : Modality
    sites : Sites or None
    columns : dict of str to Dimension
        Of the anchor; what cannot be drawn is ruled out there.
    pairs : Pairs
        What cannot be drawn together is ruled out here.
    time : str or None
        The reference's time axis.
    """

    def __init__(
        self,
        reference: Modality,
        sites: Sites | None,
        columns: dict[str, Dimension],
        pairs: Pairs,
        time: str | None,
    ) -> None:
        self.reference, self.sites, self.columns = reference, sites, columns
        self.pairs, self.time = pairs, time

    def variable(self, m: Modality, dim: str) -> str | None:
        """The variable of the sites that tells the place along a dimension."""
        assert self.sites is not None
        named = (m.window.options.at or {}).get(dim)
        if m.window.extents.get(dim) is HERE or is_time(m.array.coords.get(dim)):
            return None
        for candidate in (named, dim):
            if candidate is not None and candidate in self.sites.places:
                return candidate
        return None

    def check_placed(self, m: Modality) -> None:
        """Sites by lat and lon do not place a window along y and x: it would be cut anywhere."""
        assert self.sites is not None
        space = [
            dim
            for dim, extent in m.window.extents.items()
            if extent is not HERE
            and not is_time(known := m.array.coords.get(dim))
            and (known is None or known.dtype.kind in "iuf")
        ]
        if len(space) > 1 and not any(self.variable(m, d) is not None for d in space):
            has = ", ".join(self.sites.places) or "no numbers"
            raise ArgumentError(
                f"sites has {has} and does not place {m.name!r}, which is windowed along "
                f"{', '.join(space)}: call its variables so, or name 2-d coordinates with at="
            )

    def pixels_of_sites(self, m: Modality, dim: str) -> tuple[Ints, Bools]:
        """The pixel of every site along one dimension."""
        assert self.sites is not None
        options = m.window.options
        dims = [d for d in m.window.extents if self.variable(m, d) is not None]
        if not options.at and (options.crs is None or options.crs == self.sites.crs):
            known = m.array.coords.get(dim)
            if known is None or known.dtype.kind not in "iuf":
                raise ArgumentError(
                    f"Window of {m.name!r} is placed by sites, but {dim!r} has no numeric coordinate: give it "
                    f"one, or name a 2-d one with at={{{dim!r}: ...}}"
                )
            variable = self.variable(m, dim)
            assert variable is not None
            return places.nearest(known, self.sites.places[variable])
        if len(dims) != 2:
            raise ArgumentError(
                f"Window of {m.name!r} has crs= or at=, which takes two dimensions of space: it has "
                f"{', '.join(dims) or 'none that sites tell the place of'}; name extents of two"
            )
        dims = north_east(m, dims)
        y, x = (self.sites.places[str(self.variable(m, d))] for d in dims)
        if options.crs is not None:
            y, x = places.transform(self.sites.crs, options.crs, y, x)
        row, column, inside = nearest_pixels(m, dims, y, x)
        return (row if dim == dims[0] else column), inside

    def place(self, m: Modality, dims: list[str]) -> None:
        """Boxes around a place."""
        if self.sites is not None:
            index = (list(self.columns).index(self.sites.dim),)
            placed = [d for d in dims if self.variable(m, d) is not None]
            for dim in placed:
                position, inside = self.pixels_of_sites(m, dim)
                self.columns[self.sites.dim].rule_out(f"{m.name}: outside of it", inside)
                self._put_pixels(m, dim, index, position, self.sites.dim)
            dims = [d for d in dims if d not in placed]
            if not dims:
                return
        reference = self.reference
        turned = m.window.options.at or reference.window.options.at
        if not turned and m.window.options.crs == reference.window.options.crs:
            for dim in dims:
                column = self.columns[dim]
                assert column.coordinate is not None
                position, inside = places.nearest(
                    m.array.coords[dim], column.coordinate.astype(np.float64)
                )
                column.rule_out(f"{m.name}: outside of it", inside)
                self._put_pixels(m, dim, (list(self.columns).index(dim),), position, dim)
            return
        self._turned(m, dims)

    def _turned(self, m: Modality, dims: list[str]) -> None:
        """A grid that is turned against the reference's: both of its positions depend on both of the place's."""
        reference = self.reference
        if len(dims) != 2:
            raise ArgumentError(
                f"Window of {m.name!r} is on a grid of its own (crs= or at=), which takes two dimensions of "
                f"space: it has {', '.join(dims)}; name extents of two"
            )
        mine = [d for d in reference.window.extents if d in self.columns and d != self.time][:2]
        dims, mine = north_east(m, dims), north_east(reference, mine)
        if len(mine) != 2:
            raise ArgumentError(
                f"the reference {reference.name!r} has no two windowed dimensions of space that "
                f"{m.name!r} could be placed by: name extents of two"
            )
        y, x = coordinates(reference, mine)
        y, x = places.transform(reference.window.options.crs, m.window.options.crs, y, x)
        row, column, inside = nearest_pixels(m, dims, y, x)
        names = list(self.columns)
        index = names.index(mine[0]), names.index(mine[1])
        fits = inside
        for dim, position in zip(dims, (row, column), strict=True):
            at = m.array.dims.index(dim)
            low, high = extent_of(m.name, dim, m.window.extents[dim], None)
            check_fits(m, dim, high - low)
            m.put(at, Lookup(index, small(position)), low, high - low)
            if m.window.options.edge == "drop":
                fits = fits & (position + low >= 0) & (position + high <= m.array.shape[at])
        self.pairs.rule_out((mine[0], mine[1]), fits, f"{m.name}: outside of it")

    def _put_pixels(
        self, m: Modality, dim: str, index: tuple[int, ...], position: Ints, column: str
    ) -> None:
        at = m.array.dims.index(dim)
        low, high = extent_of(m.name, dim, m.window.extents[dim], None)
        check_fits(m, dim, high - low)
        if m.window.options.edge == "drop":
            fits = (position + low >= 0) & (position + high <= m.array.shape[at])
            self.columns[column].rule_out(f"{m.name}: over its edge", fits)
        m.put(at, Lookup(index, small(position)), low, high - low)
