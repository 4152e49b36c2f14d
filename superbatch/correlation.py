"""How alike samples of one chunk sequence are, estimated from the data themselves."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from superbatch.archive.patience import Loaded
from superbatch.archive.source import ArchiveSource
from superbatch.errors import ArgumentError, shown
from superbatch.source import Settings


def estimate_correlation(
    source: ArchiveSource,
    name: str | None = None,
    *,
    sequences: int = 16,
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
    ``notebooks/replay_and_shuffle.ipynb`` measures those.

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
    return intraclass(groups)


def intraclass(groups: list[npt.NDArray[np.float64]]) -> float | None:
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
    if len(groups) < 2:
        return None
    kept = np.all([np.isfinite(group).all(axis=0) for group in groups], axis=0)
    sizes = np.array([len(group) for group in groups])
    total = sizes.sum()
    if total <= len(groups):
        return None
    means = np.array([group[:, kept].mean(axis=0) for group in groups])
    middle = sizes @ means / total
    between = float(sizes @ ((means - middle) ** 2).sum(axis=1)) / (len(groups) - 1)
    inside = sum(
        float(((group[:, kept] - mean) ** 2).sum())
        for group, mean in zip(groups, means, strict=True)
    )
    within = inside / float(total - len(groups))
    n = (total - (sizes**2).sum() / total) / (len(groups) - 1)
    whole = between + (n - 1) * within
    if not whole > 0 or not math.isfinite(whole):
        return None
    return float(min(1.0, max(0.0, (between - within) / whole)))
