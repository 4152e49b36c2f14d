"""Boxes: half-open ranges of positions along every dimension of an array."""

from __future__ import annotations

from collections.abc import Iterable

Box = tuple[tuple[int, int], ...]


def shape(box: Box) -> tuple[int, ...]:
    """Positions along each dimension."""
    return tuple(high - low for low, high in box)


def slices(box: Box, origin: Box) -> tuple[slice, ...]:
    """The box as an index into an array that holds the box ``origin``."""
    return tuple(slice(lo - o, hi - o) for (lo, hi), (o, _) in zip(box, origin, strict=True))


def intersection(a: Box, b: Box) -> Box | None:
    """What two boxes share; None where that is nothing."""
    out = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return out if all(low < high for low, high in out) else None


def difference(a: Box, b: Box) -> list[Box]:
    """The part of ``a`` outside of ``b``, as boxes that do not overlap.

    Examples
    --------
    >>> difference(((0, 10),), ((4, 6),))
    [((0, 4),), ((6, 10),)]
    """
    shared = intersection(a, b)
    if shared is None:
        return [a]
    parts, rest = [], list(a)
    for dim, (low, high) in enumerate(shared):
        begin, end = rest[dim]
        for part in ((begin, low), (high, end)):
            if part[0] < part[1]:
                parts.append((*rest[:dim], part, *rest[dim + 1 :]))
        rest[dim] = (low, high)
    return parts


def remainder(box: Box, others: Iterable[Box]) -> list[Box]:
    """The part of ``box`` that none of the others covers, as boxes that do not overlap."""
    left = [box]
    for other in others:
        left = [part for piece in left for part in difference(piece, other)]
    return left
