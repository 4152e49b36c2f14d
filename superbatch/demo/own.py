"""A store that the user points at, as a task for the demo."""

from __future__ import annotations

import re
import warnings
from typing import Any

import xarray as xr
import zarr
from xarray.backends.zarr import ZarrArrayWrapper
from xarray.core.indexing import LazilyIndexedArray

from superbatch.demo.task import Task, count
from superbatch.errors import ArgumentError

TIME_NAMES = ("time", "t", "date", "valid_time", "step", "frame")
HELD_OUT = 0.1  # share of the time dimension, at its end


def own_task(store: str, name: str | None, window: str | None) -> Task:
    """Make a task of one array of a store.

    Parameters
    ----------
    store : str
        Path or URL of a Zarr group, or of a single array.
    name : str or None
        The array in the group; None where there is only one.
    window : str or None
        Lengths by dimension, such as ``"time=12,y=64,x=64"``. A dimension that is not named is
        taken whole.

    Raises
    ------
    ArgumentError
        There is no Zarr store, no such array, or the window does not fit it.
    """
    array, chunks = open_array(store, name)
    if array.dtype.kind not in "biuf":
        raise ArgumentError(
            f"the array {array.name!r} holds {array.dtype}, and the demo's network needs numbers: "
            "name an array of integers or floats with --array"
        )
    named = parse_window(window)
    extents = _extents(array, named)
    # of several, one that the user has named: a time that is taken whole may be of another kind
    time = _time_dimension(array, named) or _time_dimension(array, extents)
    train, heldout, split = _divide(array, extents, time)
    return Task(
        title=(
            f"the last step of each window of {array.name!r}, from the {extents[time] - 1} before"
            if time is not None
            else f"windows of {array.name!r}, through a bottleneck and back"
        ),
        where=store,
        train=train,
        heldout=heldout,
        window=extents,
        time=time,
        split=split,
        unit=str(array.attrs.get("units", "")),
        chunks=chunks,
    )


def open_array(store: str, name: str | None) -> tuple[xr.DataArray, dict[str, int]]:
    """Open one array lazily; return it with the length of its chunks along each dimension."""
    try:
        node = zarr.open(store, mode="r")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArgumentError(
            f"there is no Zarr store at {store!r}: give --store the folder or URL that holds "
            "its zarr.json, .zgroup or .zarray"
        ) from error
    array = None
    if isinstance(node, zarr.Group):
        node = _member(node, store, name)
        array = _with_xarray(store, node.path)
    if array is None:
        array = _without_xarray(node)
    lengths = node.shards or node.chunks
    return array, {str(dim): int(n) for dim, n in zip(array.dims, lengths, strict=True)}


def parse_window(text: str | None) -> dict[str, int]:
    """Lengths by dimension: ``"time=12,y=64"`` is ``{"time": 12, "y": 64}``."""
    extents: dict[str, int] = {}
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(\d+)\s*", part)
        if match is None or int(match[2]) < 1 or match[1] in extents:
            raise ArgumentError(
                f"--window {text!r}: {part.strip()!r} is not a dimension, named once, and its "
                "length: write for example --window time=12,y=64,x=64"
            )
        extents[match[1]] = int(match[2])
    return extents


def _member(group: zarr.Group, store: str, name: str | None) -> zarr.Array[Any]:
    if name is not None and name.strip("/"):
        try:
            node = group[name.strip("/")]
        except KeyError:
            node = None
        if isinstance(node, zarr.Array):
            return node
    arrays = {
        path: node
        for path, node in group.members(max_depth=None)
        if isinstance(node, zarr.Array) and node.ndim
    }
    # coordinates of one dimension are nothing to train on
    names = sorted(path for path, node in arrays.items() if node.ndim > 1) or sorted(arrays)
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    if name is not None:
        raise ArgumentError(f"{store!r} has no array {name!r}: choose one of {listed or '(none)'}")
    if len(names) != 1:
        raise ArgumentError(
            f"{store!r} holds {len(names)} arrays: choose one with --array: {listed or '(none)'}"
        )
    return arrays[names[0]]


def _with_xarray(store: str, path: str) -> xr.DataArray | None:
    """The array with its coordinates; None where its dimensions have no names."""
    group, _, name = path.rpartition("/")
    with warnings.catch_warnings():
        # consolidated metadata make opening faster, which does not matter here
        warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
        try:
            dataset: xr.Dataset = xr.open_zarr(store, group=group or None, chunks=None)
        except KeyError:
            return None
        except ValueError:  # times that cannot be decoded
            dataset = xr.open_zarr(store, group=group or None, chunks=None, decode_times=False)
    return dataset[name]


def _without_xarray(node: zarr.Array[Any]) -> xr.DataArray:
    """An array without dimension names: they are called dim_0, dim_1 and so on."""
    names: Any = getattr(node.metadata, "dimension_names", None)
    dims = [name or f"dim_{axis}" for axis, name in enumerate(names or [None] * node.ndim)]
    lazy = LazilyIndexedArray(ZarrArrayWrapper(node))  # type: ignore[no-untyped-call]
    return xr.DataArray(xr.Variable(dims, lazy), name=node.basename or "array")


def _extents(array: xr.DataArray, window: dict[str, int]) -> dict[str, int]:
    known = ", ".join(f"{dim} ({n})" for dim, n in array.sizes.items())
    for dim, length in window.items():
        if dim not in array.dims:
            raise ArgumentError(
                f"--window names the dimension {dim!r}, which {array.name!r} does not have: "
                f"choose of {known}"
            )
        if length > array.sizes[dim]:
            raise ArgumentError(
                f"--window {dim}={length} is longer than {array.name!r}, which has "
                f"{array.sizes[dim]} along {dim}: write {dim}={array.sizes[dim]} or less"
            )
    if not window:
        raise ArgumentError(
            f"--store needs --window, the length of a sample along each dimension of {known}: "
            f"write for example --window {array.dims[0]}=1"
        )
    return {str(dim): window.get(str(dim), n) for dim, n in array.sizes.items()}


def _time_dimension(array: xr.DataArray, extents: dict[str, int]) -> str | None:
    for dim in map(str, array.dims):
        coordinate = array.coords.get(dim)
        dates = coordinate is not None and (
            coordinate.dtype.kind == "M" or hasattr(coordinate.values.flat[0], "calendar")
        )
        if (dates or dim.lower() in TIME_NAMES) and extents.get(dim, 1) > 1:
            return dim
    return None


def _divide(
    array: xr.DataArray, extents: dict[str, int], time: str | None
) -> tuple[xr.DataArray, xr.DataArray | None, tuple[str, ...]]:
    """Keep the end of the longest windowed dimension, time where there is one, for judging."""
    dim = time or max(extents, key=lambda d: array.sizes[d] / extents[d])
    length, extent = array.sizes[dim], extents[dim]
    held = max(int(length * HELD_OUT), extent)
    if length - held < extent:
        total = f"{count(array, extents):,} windows for training"
        return array, None, (total, f"none held out: {dim} is too short")
    train = array.isel({dim: slice(0, length - held)})
    heldout = array.isel({dim: slice(length - held, None)})
    return (
        train,
        heldout,
        (
            f"{count(train, extents):,} windows for training",
            f"{count(heldout, extents):,} in the last {held:,} of {length:,} along {dim}, held out",
        ),
    )
