"""The axes of a plan, out of the columns of the anchor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.anchors import Anchors
from superbatch.archive.grid import Dimension, Grid
from superbatch.archive.joint import JointAxis
from superbatch.archive.sequences import Axis
from superbatch.archive.times import is_time
from superbatch.archive.validity import Allowed, allowed
from superbatch.errors import ArgumentError

# A coordinate longer than this is not sent to the loaders just to word an error.
_LONG = 1 << 20


def make_axes(
    grid: Grid,
    per_sequence: Mapping[str, int],
    valid: Any,
    weights: npt.ArrayLike | None,
    all_sites: bool = False,
) -> tuple[Anchors, dict[str, Allowed]]:
    """The axes that a plan draws from, and what was ruled out along each.

    Parameters
    ----------
    grid : Grid
    per_sequence : mapping of str to int
        Chunks in a sequence, by dimension.
    valid, weights
        Of the anchors along the time axis, or the first dimension where there is none.

    Raises
    ------
    ArgumentError
        Nothing is left to be drawn, with the reasons.
    """
    every = None
    if all_sites:
        every = _every_site(grid)
    timed = [d.name for d in grid.dimensions if is_time(d.coordinate)]
    chosen = timed[0] if timed else grid.dimensions[0].name
    found: dict[str, Allowed] = {}
    columns: list[Axis] = []
    for dimension in grid.dimensions:
        if dimension.width > dimension.length:
            raise ArgumentError(
                f"the windows together are {dimension.width} long in {dimension.name!r}, where the array "
                f"has {dimension.length}: no window fits; shorten them"
            )
        mine = dimension.name == chosen
        ours = allowed(dimension, valid if mine else None, weights if mine else None)
        found[dimension.name] = ours
        axis = Axis(
            dimension.name,
            dimension.chunks,
            dimension.width,
            per_sequence[dimension.name],
            ours.starts,
            ours.weights,
        )
        if axis.total == 0:
            raise _nothing_left(dimension, ours)
        columns.append(axis)
    axes, order = _join(grid, columns)
    if every is not None:
        kept = [n for n, column in enumerate(order) if column != every[0]]
        axes, order = [axes[n] for n in kept], [order[n] for n in kept]
    anchors = Anchors(
        axes,
        order,
        [-d.low for d in grid.dimensions],
        [d.name for d in grid.dimensions],
        {
            d.name: d.coordinate
            for d in grid.dimensions
            if d.coordinate is not None and d.length <= _LONG
        },
        every,
    )
    return anchors, found


def _every_site(grid: Grid) -> tuple[int, int]:
    """The column of the sites, all of which are in each sample: each has to be there always."""
    (column,) = [n for n, d in enumerate(grid.dimensions) if d.site]
    sites = grid.dimensions[column]
    for reason, valid in sites.valid.items():
        lost = np.flatnonzero(~valid)
        if len(lost) and sites.coordinate is not None:
            raise ArgumentError(
                f"{len(lost)} of {sites.length} sites cannot be in a sample of all sites ({reason}), the first "
                f"is {sites.coordinate[lost[0]]}: leave them out of sites="
            )
    if len(grid.dimensions) == 1:
        raise ArgumentError(
            "all sites at one time need a reference with a time axis: name one first"
        )
    if grid.joint is not None:
        first, second, pairs = grid.joint
        if second == column:
            reason = ", ".join(grid.joint_reasons)
            grid.dimensions[first].rule_out(
                f"{reason}, at one of the sites", np.asarray(pairs.all(axis=1))
            )
            grid.joint = None
    return column, sites.length


def _join(grid: Grid, columns: list[Axis]) -> tuple[list[Axis | JointAxis], list[int]]:
    """Make one axis of two columns that depend on each other; which column each comes from."""
    if grid.joint is None:
        return list(columns), list(range(len(columns)))
    a, b, pairs = grid.joint
    first, second = columns[a], columns[b]
    # From places to the numbers of valid windows.
    rows, cols = (
        axis.start(np.arange(axis.total)) - grid.dimensions[n].low
        for axis, n in ((first, a), (second, b))
    )
    if len(rows) < pairs.shape[0]:
        pairs = pairs[rows]
    if len(cols) < pairs.shape[1]:
        pairs = pairs[:, cols]
    joint = JointAxis(first, second, pairs)
    if joint.total == 0:
        reasons = ", ".join(f"{n} by {reason}" for reason, n in grid.joint_reasons.items())
        raise ArgumentError(
            f"no pair of {first.name!r} and {second.name!r} is left (ruled out: {reasons}): allow more"
        )
    rest = [n for n in range(len(columns)) if n not in (a, b)]
    return [joint, *(columns[n] for n in rest)], [a, b, *rest]


def _nothing_left(dimension: Dimension, found: Allowed) -> ArgumentError:
    reasons = ", ".join(f"{n} by {reason}" for reason, n in found.ruled_out.items() if n)
    return ArgumentError(
        f"no window of length {dimension.width} is left along {dimension.name!r} with its "
        f"{dimension.length} positions (ruled out: {reasons or 'none'}): allow more, or shorten the window"
    )
