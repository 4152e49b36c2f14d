"""What a user may write, and what is said to one who wrote something else."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.align import Grid
from superbatch.errors import ArgumentError, shown
from superbatch.source import Fields
from superbatch.window import Window

# The largest number of samples, sequences or chunks that is taken for meant.
_MOST = 2**31


def check_windows(windows: object) -> None:
    """What a sample is made of has to be Windows by name."""
    if not isinstance(windows, Mapping) or not windows:
        raise TypeError(
            f"windows is {type(windows).__name__}: write a dict of Window by name, "
            f'such as {{"sat": sb.Window(sat, time=12)}}'
        )
    for name, window in windows.items():
        if not isinstance(name, str):
            raise TypeError(f"{shown(name)} cannot name a modality: write a str")
        if not isinstance(window, Window):
            raise TypeError(
                f"{name!r} is {type(window).__name__}: write sb.Window(array, time=12) to say what is cut from it"
            )


def is_number(value: object) -> bool:
    """Whether a value is a real number; a flag is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def one_of(name: str, value: object, known: Sequence[str]) -> None:
    """A value has to be one of a few words."""
    if not isinstance(value, str) or value not in known:
        spelled = " or ".join(f'"{word}"' for word in known)
        raise ArgumentError(f"{name}={shown(value)} is not known: write {spelled}")


def positive(name: str, value: object) -> None:
    """A value has to be a number of things."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ArgumentError(
            f"{name}={shown(value)} is not a number of things: write an int, 1 or more"
        )
    if value > _MOST:
        raise ArgumentError(
            f"{name}={value} is more than fits anywhere: write an int up to {_MOST}"
        )


def per_dimension(given: int | Mapping[str, int], grid: Grid) -> dict[str, int]:
    """Chunks in a sequence, along each windowed dimension."""
    names = [d.name for d in grid.dimensions]
    per = dict.fromkeys(names, 1)
    if isinstance(given, Mapping):
        for name, number in given.items():
            if name not in per:
                raise ArgumentError(
                    f"chunks_per_sequence names {name!r}, which is not windowed: write one of {', '.join(names)}"
                )
            positive(f"chunks_per_sequence[{name!r}]", number)
            per[name] = int(number)
        return per
    positive("chunks_per_sequence", given)
    per[names[0]] = int(given)
    return per


def fields_of(sample: Mapping[str, npt.NDArray[Any]]) -> Fields:
    """The shape and dtype of all samples, from the first that ``transform`` has returned."""
    if not sample:
        raise ArgumentError("transform returned an empty dict: it must return at least one array")
    for name, value in sample.items():
        if not isinstance(name, str):
            raise ArgumentError(
                f"transform returned the key {shown(name)}: it must name each array by a str"
            )
        if value.dtype.kind not in "biuf":
            raise ArgumentError(
                f"transform returned {name!r} with dtype {value.dtype}, which no tensor can hold: "
                f"return numbers or bools"
            )
    return {name: (value.shape, value.dtype) for name, value in sample.items()}
