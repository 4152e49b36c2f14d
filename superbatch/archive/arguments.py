"""What a user may write, and what is said to one who wrote something else."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.archive.patience import Patience
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


def check_coverage(coverage: object, turnover: object, weights: object) -> None:
    """These have to go together."""
    one_of("coverage", coverage, ("random", "once"))
    if not is_number(turnover) or not 0 < turnover <= 1:  # type: ignore[operator]
        raise ArgumentError(
            f"turnover={shown(turnover)} is not a share: write a number above 0 and up to 1"
        )
    if coverage == "once" and turnover < 1:  # type: ignore[operator]
        raise ArgumentError(
            f'turnover={turnover} needs coverage="random": with "once" no sequence is sampled again'
        )
    if coverage == "once" and weights is not None:
        raise ArgumentError(
            'weights need coverage="random": with "once" every window is served once'
        )


def check_functions(**functions: object) -> None:
    """What is called has to be callable."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(
                f"{name}={shown(function)} is not callable: write a function of a sample"
            )


def patience(on_error: object, retries: object, read_timeout: object) -> Patience:
    """How a store's failures are met."""
    one_of("on_error", on_error, ("raise", "skip"))
    if isinstance(retries, bool) or not isinstance(retries, (int, np.integer)) or retries < 0:
        raise ArgumentError(
            f"retries={shown(retries)} is not a number of tries: write an int, 0 or more"
        )
    if not is_number(read_timeout) or not read_timeout > 0:  # type: ignore[operator]
        raise ArgumentError(
            f"read_timeout={shown(read_timeout)} is not a time: write a number of seconds above 0"
        )
    return Patience(int(retries), on_error == "skip", float(read_timeout))  # type: ignore[arg-type]


def per_dimension(given: int | Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """Chunks in a sequence, along each windowed dimension."""
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
