"""Types, normalisation, NaN, masks and dropout of values, element by element."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import superbatch as sb
from superbatch.archive.values import Values, values_of
from superbatch.errors import ArgumentError
from superbatch.serve import Finish
from superbatch.window import Options


def treat(options: Options, raw: np.ndarray, there=None, dropped=False):
    """One sample, and its mask."""
    data = xr.DataArray(raw, dims=("c", "x"), coords={"c": ["a", "b"]})
    values = values_of(options, "f", raw.dtype, ("c", "x"), raw.shape, data)
    out = np.full(raw.shape, 77, values.dtype)
    mask = np.zeros(raw.shape, bool) if values.mask else None
    if dropped:
        values.drop(out, mask)
    else:
        values.finish(raw, out, mask, there)
    return values, out, mask


def given_out(values: Values, out: np.ndarray, mask) -> np.ndarray:
    """What the user gets of a batch of one."""
    batch = {"f": torch.from_numpy(out[None].copy())}
    if mask is not None:
        batch["f_mask"] = torch.from_numpy(mask[None])
    scales = {} if values.late is None else {"f": values.late}
    return Finish({}, scales)(batch)["f"].numpy()[0]


@given(
    st.sampled_from(["i2", "u1", "f4", "f8"]),
    st.sampled_from([None, "f4", "f8", "f2"]),
    st.sampled_from([None, 0.0, -3.0]),
    st.booleans(),
    st.sampled_from(["whole", "edge", "dropped"]),
    st.integers(0, 20),
)
def test_on_the_device_as_in_the_loader_to_the_last_bit(kind, dtype, nan, mask, case, seed) -> None:
    rng = np.random.default_rng(seed)
    raw = (rng.random((2, 5)) * 200).astype(kind)
    if raw.dtype.kind == "f":
        raw[rng.random(raw.shape) < 0.3] = np.nan
    elif case != "whole":
        mask = True
    there = rng.random(raw.shape) < 0.6 if case == "edge" else None
    common = {
        "mean": xr.DataArray([3.3, 77.7], {"c": ["b", "a"]}),
        "std": 12.5,
        "nan": nan,
        "mask": mask,
        "dtype": None if dtype is None else np.dtype(dtype),
        "edge": "fill" if case == "edge" else "drop",
        "dropout": 0.5 if case == "dropped" else 0.0,
    }
    here = treat(Options(**common), raw, there, case == "dropped")
    later = treat(Options(**common, normalize="device"), raw, there, case == "dropped")
    assert later[0].dtype == raw.dtype  # travels as it is stored
    got, expected = given_out(*later), given_out(*here)
    assert got.dtype == expected.dtype
    assert np.array_equal(got, expected, equal_nan=True)
    if mask:
        assert np.array_equal(here[2], later[2])

    # and as it says on the label
    full = np.dtype(dtype or ("f8" if kind == "f8" else "f4"))
    mean = np.array([[77.7], [3.3]]).astype(full)
    wanted = (raw.astype(full) - mean) / np.array(12.5, full)
    gone = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
    gone |= np.bool_(case == "dropped")
    if there is not None:
        gone |= ~there
    wanted[gone] = np.nan if nan is None else nan
    assert np.array_equal(expected, wanted, equal_nan=True)


@pytest.mark.parametrize("nan", [None, 7])
def test_integers_of_floats_with_nan_are_defined(nan) -> None:
    raw = np.array([[1.0, np.nan], [np.nan, 4.0]], "f4")
    _, out, mask = treat(Options(dtype=np.dtype("i2"), nan=nan, mask=True), raw)
    assert out.tolist() == [[1, nan or 0], [nan or 0, 4]]
    assert mask.tolist() == [[True, False], [False, True]]


def test_values_that_need_nothing_are_taken_as_they_are() -> None:
    values, _, _ = treat(Options(), np.zeros((2, 2), "f4"))
    assert values.plain
    for options in ({"dtype": np.dtype("f8")}, {"nan": 0}, {"mask": True}, {"mean": 1}):
        values, _, _ = treat(Options(**options), np.zeros((2, 2), "f4"))
        assert not values.plain


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"std": 0}, "f4", "has a 0 in it"),
        ({"std": [1.0, 0.0]}, "f4", "has a 0 in it"),
        ({"mean": 1, "dtype": np.dtype("i2")}, "f4", "write dtype='float32'"),
        ({"nan": 0.5}, "i2", "write a whole number"),
        ({"mean": np.zeros(3)}, "f4", "does not broadcast"),
        ({"mean": xr.DataArray([1.0], dims="z")}, "f4", "has the dimension 'z'"),
        ({"mean": 1, "normalize": "device", "dropout": 0.1}, "i2", "write mask=True"),
        ({"mean": 1, "normalize": "device", "edge": "fill"}, "u1", "write mask=True"),
    ],
)
def test_what_cannot_be_held_is_said(options, kind, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        treat(Options(**options), np.ones((2, 2), kind))


@pytest.mark.parametrize(
    "options",
    [
        {"edge": "wrap"},
        {"nan": "zero"},
        {"nan": True},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"dropout": True},
        {"normalize": "gpu"},
        {"dtype": "datetime64[ns]"},
        {"dtype": str},
    ],
)
def test_options_that_are_not_known(options) -> None:
    with pytest.raises(ArgumentError):
        sb.Window(xr.DataArray(np.zeros(3), dims="x"), x=1, **options)
