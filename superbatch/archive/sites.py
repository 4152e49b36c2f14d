"""The places that samples are cut around, where they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from superbatch.errors import ArgumentError
from superbatch.window import HERE, Window


def _plain(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Names as numbers or as strings of fixed length, which can be sorted."""
    if names.dtype.kind == "T" or (
        names.dtype.kind == "O" and all(isinstance(name, str) for name in names)
    ):
        return names.astype(str)
    return names


class Sites:
    """Named places.

    Parameters
    ----------
    given : xarray.Dataset
        Numeric variables (or coordinates) along one dimension: the places, called as the dimensions of
        the arrays that they place windows in (``x``, ``y``), or as the coordinates that ``at=`` names. The
        dimension's coordinate names the sites. ``attrs["crs"]`` is their projection.
    """

    def __init__(self, given: object) -> None:
        if not isinstance(given, xr.Dataset):
            raise TypeError(
                f"sites is {type(given).__name__}: write an xarray.Dataset with the places (x, y) by site"
            )
        if len(given.dims) != 1:
            raise ArgumentError(
                f"sites has the dimensions {', '.join(map(str, given.dims)) or 'none'}: "
                f"it must have one, such as 'site'"
            )
        (dim,) = given.dims
        self.dim = str(dim)
        self.crs: Any = given.attrs.get("crs")
        count = given.sizes[dim]
        if count == 0:
            raise ArgumentError("sites is empty: write at least one place")
        ids = given[dim].values if dim in given.coords else np.arange(count)
        self.ids: npt.NDArray[Any] = _plain(np.asarray(ids))
        if len(np.unique(self.ids)) != count:
            raise ArgumentError(
                f"sites has the same name twice along {self.dim!r}: names must differ"
            )
        self.places: dict[str, npt.NDArray[np.float64]] = {
            str(name): np.asarray(variable.values, dtype=np.float64)
            for name, variable in given.variables.items()
            if name != dim and variable.dims == (dim,) and variable.dtype.kind in "iuf"
        }

    @classmethod
    def all_of(cls, windows: Mapping[str, Window]) -> Sites:
        """The sites of the first array that has a dimension ``HERE``, with its coordinates by site."""
        for window in windows.values():
            for dim, extent in window.extents.items():
                if extent is HERE and isinstance(window.data, xr.DataArray):
                    coords = {
                        name: coordinate
                        for name, coordinate in window.data.coords.items()
                        if coordinate.dims == (dim,)
                    }
                    return cls(xr.Dataset(coords=coords, attrs=window.data.attrs))
        raise ArgumentError(
            'sites="all" needs a window with a dimension that is sb.HERE: it says which sites there are'
        )

    def find(
        self, known: npt.NDArray[Any], where: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The position of each site among the names of an array, and whether it is there.

        Raises
        ------
        ArgumentError
            Names of two kinds, or a name that the array has twice.
        """
        names = _plain(known)
        if (names.dtype.kind == "U") != (self.ids.dtype.kind == "U"):
            raise ArgumentError(
                f"{where}: its sites are named by {names.dtype}, those of sites= by {self.ids.dtype}: "
                f"make both the same, such as with .assign_coords({self.dim}=...)"
            )
        order = np.argsort(names, kind="stable")
        begin = np.searchsorted(names[order], self.ids)
        end = np.searchsorted(names[order], self.ids, side="right")
        if (end - begin > 1).any():
            raise ArgumentError(
                f"{where}: it has the site {self.ids[(end - begin > 1).argmax()]} twice: names must differ"
            )
        return order[np.minimum(begin, len(names) - 1)].astype(np.int64), end > begin

    def sort(self, order: npt.NDArray[Any]) -> None:
        """Bring the sites into another order."""
        self.ids = self.ids[order]
        self.places = {name: values[order] for name, values in self.places.items()}
