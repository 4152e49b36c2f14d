"""Samples of an ArchiveSource without processes, and the slow way to cut the same ones with xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from superbatch.archive.patience import Loaded
from superbatch.archive.source import ArchiveSource
from superbatch.source import Settings

Sample = dict[str, np.ndarray]


def samples(source: ArchiveSource, index: int = 9, seed: int = 0) -> dict[str, np.ndarray]:
    """Superbatch ``index``, cut in this process: arrays by name, samples first.

    The first ones are smaller, so the default is past them.
    """
    feed = source.bind(Settings(1, seed, 0, 1, True, 1, 1))
    plan, cutter = feed.plan.superbatch(0, index), feed.cutter
    slot = {
        name: np.full((len(plan.starts), *shape), 7, dtype)
        for name, (shape, dtype) in feed.fields.items()
    }
    for rows, boxes in zip(plan.rows(), cutter.boxes(plan.sequences), strict=True):
        blocks = [Loaded(a.read(box)) for a, box in zip(cutter.arrays, boxes, strict=True)]
        new = [True] * len(blocks)
        cutter.cut(blocks, boxes, plan.starts[rows], rows, slot, new, plan.noise(rows))
    return slot


def latest(axis: np.ndarray, t0: np.datetime64) -> int:
    """The position of the latest stamp at or before a time."""
    return int(np.flatnonzero(axis <= t0)[-1])


def series(data: xr.DataArray, dim: str, t0: np.datetime64, begin: str, end: str) -> xr.DataArray:
    """The stamps of an axis between two offsets around its latest stamp."""
    anchor = data[dim].values[latest(data[dim].values, t0)]
    return data.sel({dim: slice(anchor + offset(begin), anchor + offset(end))})


def pixels(data: xr.DataArray, place: dict[str, float], size: int) -> xr.DataArray:
    """A box of pixels around a place; the nearest pixel is found by looking at all of them."""
    index = {}
    for dim, value in place.items():
        nearest = int(np.abs(data[dim].values - value).argmin())
        index[dim] = slice(nearest - size // 2, nearest - size // 2 + size)
    return data.isel(index)


def forecast(
    data: xr.DataArray, t0: np.datetime64, hours: range, delay: str, past: str
) -> list[tuple[np.datetime64, np.datetime64]]:
    """For each valid time of an hourly forecast: the run, and the time itself."""
    runs = data["init_time"].values
    floor = t0.astype("datetime64[h]").astype("datetime64[ns]")
    chosen = []
    for hour in hours:
        valid = floor + np.timedelta64(hour, "h")
        known = runs[runs <= t0 - offset(delay)]
        if past == "freshest" and valid <= t0:
            known = known[known <= valid]
        chosen.append((known[-1], valid))
    return chosen


def offset(text: str) -> np.timedelta64:
    """A duration such as "-30min" or "2h"."""
    sign = -1 if text.startswith("-") else 1
    number = int("".join(c for c in text if c.isdigit()))
    unit = {"min": "m", "h": "h", "D": "D"}["".join(c for c in text if c.isalpha())]
    return sign * np.timedelta64(number, unit).astype("timedelta64[ns]")


def when(value: Any) -> np.datetime64:
    """A time out of a batch."""
    return np.datetime64(int(value), "ns")
