"""What lies under a Dask array: the array that its graph cuts up, where it does nothing else.

Blocks are followed from the end of the graph to the array at its source, as views of that array.
Only tasks that cut, join and turn are understood. Anything else raises :class:`NotPlain`, and
Dask computes the array.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np
import zarr
from dask._task_spec import Alias, DataNode, List, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate_shaped, getter, getter_inline, getter_nofancy
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArraySliceDep

from superbatch.archive.read_view import NotPlain, View
from superbatch.archive.read_xarray import Unwrapped, sources, unwrap

_GETTERS = (getter, getter_inline, getter_nofancy)
_GETITEM = (operator.getitem, chunk.getitem)

# Up to this number, all blocks of a sliced or rechunked array are looked at; beyond it, those along
# each axis and a thousand others. The graph of such an array holds each of them already.
ALL_BLOCKS = 20_000
SOME_BLOCKS = 1_000

At = tuple[int, ...]


def unwrap_dask(array: Any) -> Unwrapped:
    """Look through a Dask graph that does no more than cut, join and turn one Zarr array.

    Parameters
    ----------
    array : dask.array.Array
        What ``DataArray.variable._data`` is for data that is chunked by Dask.

    Raises
    ------
    NotPlain
        A graph that does anything else, or whose source is no Zarr array.
    """
    try:
        graph = _Graph(array)
        view = graph.whole(array.name, array.numblocks)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # A graph of a form that this version of Dask does not make.
        raise NotPlain(f"a Dask graph that is not understood: {error!r}") from error
    if view.shape != array.shape:
        raise NotPlain("a Dask graph that shows another shape than its array")
    if isinstance(graph.source, zarr.Array):
        return Unwrapped(graph.source, view)
    inner = unwrap(graph.source)
    return Unwrapped(inner.stored, view.on(inner.view), inner.steps)


def sources_dask(array: Any) -> list[zarr.Array[Any]]:
    """The Zarr arrays that a Dask graph of any kind takes its blocks from, as far as they show."""
    graph = array.dask
    found: list[zarr.Array[Any]] = []
    for layer in getattr(graph, "layers", {"": graph}).values():
        if isinstance(layer, Blockwise):
            held = [what for what, indices in layer.indices if indices is None]
        else:
            held = list(layer.values())
        for what in held:
            found += sources(what.value if isinstance(what, DataNode) else what)
    return found


class _Graph:
    """A Dask graph, as views of the one array at its source."""

    def __init__(self, array: Any) -> None:
        if not isinstance(array.dask, HighLevelGraph):
            raise NotPlain("a Dask graph without layers")
        self.layers: Mapping[Any, Any] = array.dask.layers
        self.source: Any = None
        self.block = cache(self._block)

    def whole(self, name: str, numblocks: At) -> View:
        """What an array shows of the source, from the views of its blocks."""
        layer = self.layers[name]
        if isinstance(layer, Blockwise):
            if layer.io_deps:
                slices = self._open(layer)
                if tuple(map(sum, slices.chunks)) != tuple(self.source.shape):
                    raise NotPlain("chunks that do not cover their source")
                return View.whole(self.source.shape)
            below, axes = _turned(layer)
            return self.whole(below, tuple(layer.numblocks[below])).transpose(axes)
        views = {at: self.block(name, at) for at in _looked_at(numblocks)}
        return _joined(views, numblocks)

    def _block(self, name: str, at: At) -> View:
        """What one block shows of the source."""
        layer = self.layers[name]
        if not isinstance(layer, Blockwise):
            return self._task(layer, layer[(name, *at)])
        if layer.io_deps:
            slices = self._open(layer)
            return View.whole(self.source.shape).index(slices[at])
        below, axes = _turned(layer)
        return self.block(below, tuple(at[k] for k in np.argsort(axes))).transpose(axes)

    def _task(self, layer: Mapping[Any, Any], task: Any) -> View:
        if isinstance(task, Alias):
            return self._behind(layer, task.target)
        if isinstance(task, TaskRef):
            return self._behind(layer, task.key)
        if not isinstance(task, Task) or task.kwargs:
            raise NotPlain(f"a task of type {type(task).__name__}")
        if task.func in _GETITEM:
            of, key = task.args
            view = self._task(layer, of)
            if len(key) != len(view.order) or not all(isinstance(k, slice | int) for k in key):
                raise NotPlain(f"a block is indexed with {key}")
            return view.index(key)
        if task.func is concatenate_shaped:
            parts, grid = task.args
            if not isinstance(parts, List):
                raise NotPlain("blocks are joined in a way that is not known")
            found = [self._task(layer, part) for part in parts.args]
            return _joined(dict(zip(np.ndindex(*grid), found, strict=True)), tuple(grid))
        raise NotPlain(f"a task calls {task.func}")

    def _behind(self, layer: Mapping[Any, Any], key: Any) -> View:
        """The view behind a key: a block of another array, or a task within the same layer."""
        if key[0] in self.layers:
            return self.block(key[0], tuple(key[1:]))
        return self._task(layer, layer[key])

    def _open(self, layer: Blockwise) -> Any:
        """The slices by which a layer takes blocks from the source, which is kept."""
        slices: Any
        source: Any
        (slices,) = layer.io_deps.values()
        (source, none), (_, indices) = layer.indices
        plain = (
            layer.task.func in _GETTERS
            and none is None
            and type(slices) is ArraySliceDep
            and indices == tuple(layer.output_indices)
            and not (layer.new_axes or layer.concatenate)
        )
        if not plain:
            raise NotPlain("blocks are taken from their source in a way that is not known")
        if isinstance(source, TaskRef):
            source = self._source(source.key)
        if self.source is not None and self.source is not source:
            raise NotPlain("a Dask graph of several arrays")
        self.source = source
        return slices

    def _source(self, key: Hashable) -> Any:
        found = self.layers[key][key]
        return found.value if isinstance(found, DataNode) else found


def _turned(layer: Blockwise) -> tuple[str, tuple[int, ...]]:
    """The array that a layer transposes, and the order of its axes."""
    below: Any
    indices: Any
    ((below, indices),) = layer.indices
    axes = tuple(int(axis) for axis in layer.task.kwargs["axes"])
    plain = (
        layer.task.func is np.transpose
        and set(layer.task.kwargs) == {"axes"}
        and tuple(indices[axis] for axis in axes) == tuple(layer.output_indices)
        and not (layer.new_axes or layer.concatenate)
    )
    if not plain:
        raise NotPlain(f"a layer calls {layer.task.func}")
    return below, axes


def _looked_at(numblocks: At) -> list[At]:
    if prod(numblocks) <= ALL_BLOCKS:
        return list(np.ndindex(*numblocks))
    first = (0,) * len(numblocks)
    along = [
        (*first[:axis], k, *first[axis + 1 :]) for axis, n in enumerate(numblocks) for k in range(n)
    ]
    rng = np.random.default_rng(0)
    others = rng.integers(0, numblocks, (SOME_BLOCKS, len(numblocks)))
    return [*along, *(tuple(int(k) for k in at) for at in others)]


def _joined(views: Mapping[At, View], grid: At) -> View:
    """The view of blocks side by side; those along each axis say what the others must be."""
    first = views[(0,) * len(grid)]
    borders: list[list[int]] = []
    axes = list(first.axes)
    for dim, axis in enumerate(first.order):
        if axis is None:
            raise NotPlain("blocks with a new axis")
        origin = [0] * len(grid)
        parts = [views[*origin[:dim], k, *origin[dim + 1 :]].axes[axis] for k in range(grid[dim])]
        axes[axis], ends = _even(parts)
        borders.append(ends)
    whole = View(tuple(axes), first.order)
    for at, view in views.items():
        box = [range(borders[dim][k], borders[dim][k + 1]) for dim, k in enumerate(at)]
        if whole.index(box) != view:
            raise NotPlain("blocks that do not lie side by side")
    return whole


def _even(parts: list[Any]) -> tuple[range, list[int]]:
    """Ranges that continue each other, as one, and where each begins in it."""
    ends = [0]
    positions: list[int] = []
    for part in parts:
        ends.append(ends[-1] + len(part))
        # The first two positions of all say what the rest is; `_joined` looks at every part.
        positions.extend(part[: max(0, 2 - len(positions))])
    if not positions:
        return range(0), ends
    step = positions[1] - positions[0] if len(positions) > 1 else 1
    if step == 0:
        raise NotPlain("blocks that repeat a position")
    return range(positions[0], positions[0] + step * ends[-1], step), ends
