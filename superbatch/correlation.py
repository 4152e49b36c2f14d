"""How alike samples of one chunk sequence are, estimated from the data themselves."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from superbatch.archive.patience import Loaded
from superbatch.archive.source import ArchiveSource
from superbatch.errors import ArgumentError, shown
from superbatch.source import Settings

Floats = npt.NDArray[np.float64]


def estimate_correlation(
    source: ArchiveSource,
    name: str | None = None,
    *,
    sequences: int = 32,
    samples: int = 8,
    seed: int = 0,
) -> float | None:
    """The correlation within a chunk sequence, for ``dataset.quality(correlation=...)``.

    Some sequences are read in this process, and some windows cut from each. What their values have in common
    is the intraclass correlation of a one-way analysis of variance (Fisher 1925, "Statistical methods for
    research workers"; form ICC(1) of Shrout and Fleiss 1979, "Intraclass correlations")::

        icc = (between - within) / (between + (n - 1) * within)

    where ``between`` and ``within`` are the mean squares between and within sequences, added up over all values of
    a sample, and ``n`` is the number of samples from a sequence, corrected for unequal ones (Snedecor and Cochran
    1967, "Statistical methods"). What counts for training is how alike gradients are, which this only hints at:
    ``notebooks/replay_and_shuffle.ipynb`` measures those. With few sequences it is rough: by 0.1 or more with 16, as
    :func:`correlation_and_error` tells.

    Parameters
    ----------
    source : ArchiveSource
    name : str, optional
        The array of a sample that is looked at. Default: the first.
    sequences : int
        How many to read, 2 or more.
    samples : int
        From each, about: 2 or more.
    seed : int

    Returns
    -------
    float or None
        From 0, samples of a sequence are as different as any, to 1, they are equal. None where it cannot be
        told: there are too few sequences, or all values are the same.

    Raises
    ------
    ArgumentError
        There is no such array, or it does not hold numbers.

    Examples
    --------
    >>> import numpy as np, xarray as xr, superbatch as sb
    >>> level = np.repeat(np.random.default_rng(0).normal(size=40), 10)  # one for each chunk of ten
    >>> field = xr.DataArray(level.astype("f4"), dims="time").chunk(time=10)
    >>> source = sb.ArchiveSource({"field": sb.Window(field, time=1)}, chunks_per_sequence=1)
    >>> round(estimate_correlation(source), 2)
    1.0
    """
    return correlation_and_error(source, name, sequences=sequences, samples=samples, seed=seed)[0]


def correlation_and_error(
    source: ArchiveSource,
    name: str | None = None,
    *,
    sequences: int = 32,
    samples: int = 8,
    seed: int = 0,
) -> tuple[float | None, float | None]:
    """:func:`estimate_correlation`, and its standard error.

    The error is that of the jackknife over sequences (Efron and Tibshirani 1993, "An introduction to the bootstrap",
    chapter 11).

    Parameters
    ----------
    source, name, sequences, samples, seed
        As there.

    Returns
    -------
    (float or None, float or None)
        None where it cannot be told; the error needs three sequences.

    Raises
    ------
    ArgumentError
        As there.

    Examples
    --------
    >>> import numpy as np, xarray as xr, superbatch as sb
    >>> field = xr.DataArray(np.random.default_rng(0).normal(size=400), dims="time").chunk(time=10)
    >>> source = sb.ArchiveSource({"field": sb.Window(field, time=1)}, chunks_per_sequence=1)
    >>> correlation, error = correlation_and_error(source)
    >>> correlation < 0.2, error < 0.1
    (True, True)
    """
    for what, number in (("sequences", sequences), ("samples", samples)):
        if number < 2:
            raise ArgumentError(f"{what}={shown(number)} tells nothing: write 2 or more")
    drawn = source.replace(
        samples=sequences * samples, sequences=sequences, turnover=1.0, memory=None, transform=None
    )
    feed = drawn.bind(Settings(1, seed, 0, 1, True, 1, 1))
    name = next(iter(feed.fields)) if name is None else name
    if name not in feed.fields or feed.fields[name][1].kind not in "biuf":
        known = [n for n, (_, dtype) in feed.fields.items() if dtype.kind in "biuf"]
        raise ArgumentError(
            f"name={shown(name)} is no array of numbers in a sample: write one of {', '.join(known)}"
        )
    groups = []
    # the first superbatch of full size
    plan, cutter = feed.plan.superbatch(0, feed.plan.small), feed.cutter
    for rows, boxes in zip(plan.rows(), cutter.boxes(plan.sequences), strict=True):
        # a window that was drawn twice is one sample
        rows = rows[np.unique(plan.starts[rows], axis=0, return_index=True)[1]]
        if len(rows) < 2:
            continue
        slot = {
            n: np.zeros((len(rows), *shape), dtype) for n, (shape, dtype) in feed.fields.items()
        }
        blocks = [Loaded(a.read(box)) for a, box in zip(cutter.arrays, boxes, strict=True)]
        new, at = [False] * len(blocks), np.arange(len(rows), dtype=np.int64)
        cutter.cut(blocks, boxes, plan.starts[rows], at, slot, new, plan.noise(rows))
        groups.append(slot[name].reshape(len(rows), -1).astype(np.float64))
    if not groups:
        return None, None
    means, sizes, inside = summed = _summed(groups)
    whole = _of_sums(*summed)
    if whole is None or len(groups) < 3:
        return whole, None
    rest = [np.arange(len(groups)) != left for left in range(len(groups))]
    without = [_of_sums(means[keep], sizes[keep], inside[keep]) for keep in rest]
    values = np.array([v for v in without if v is not None])
    if len(values) < len(groups):
        return whole, None
    spread = ((values - values.mean()) ** 2).sum()
    return whole, float(np.sqrt((len(values) - 1) / len(values) * spread))


def intraclass(groups: list[Floats]) -> float | None:
    """The intraclass correlation of groups of samples.

    Parameters
    ----------
    groups : list of float64 arrays, shape (samples, values)
        Values that are NaN in any sample are left out.

    Returns
    -------
    float or None
        From 0 to 1; None where there are fewer than two groups, or nothing varies.
    """
    return _of_sums(*_summed(groups)) if groups else None


def _summed(groups: list[Floats]) -> tuple[Floats, Floats, Floats]:
    """Of each group: the mean of each value, the number of samples, the squares about the mean."""
    kept = np.all([np.isfinite(group).all(axis=0) for group in groups], axis=0)
    means = np.array([group[:, kept].mean(axis=0) for group in groups])
    inside = [
        ((group[:, kept] - mean) ** 2).sum() for group, mean in zip(groups, means, strict=True)
    ]
    return means, np.array([float(len(group)) for group in groups]), np.array(inside)


def _of_sums(means: Floats, sizes: Floats, inside: Floats) -> float | None:
    groups, total = len(sizes), sizes.sum()
    if groups < 2 or total <= groups:
        return None
    middle = sizes @ means / total
    between = float(sizes @ ((means - middle) ** 2).sum(axis=1)) / (groups - 1)
    within = float(inside.sum() / (total - groups))
    n = (total - (sizes**2).sum() / total) / (groups - 1)
    whole = between + (n - 1) * within
    if not whole > 0 or not math.isfinite(whole):
        return None
    return float(min(1.0, max(0.0, (between - within) / whole)))
