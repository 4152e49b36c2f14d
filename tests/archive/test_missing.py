"""Windows without NaN, compared with looking into each."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive import missing as ms
from superbatch.archive.arrays import as_array


@given(st.integers(0, 99), st.integers(-5, 3), st.integers(1, 9), st.integers(1, 20))
def test_windows_are_whole_where_nothing_in_them_is_missing(seed, low, width, columns) -> None:
    rng = np.random.default_rng(seed)
    gone = rng.random((rng.integers(1, 25), columns)) < 0.15
    position = rng.integers(0, len(gone), 30)
    got = ms.whole_windows(gone, position, low, low + width)
    for row, at in enumerate(position.tolist()):
        begin, end = at + low, at + low + width
        if begin < 0 or end > len(gone):
            assert got[row].all()  # not because of NaN
        else:
            assert np.array_equal(got[row], ~gone[begin:end].any(axis=0))


@pytest.mark.parametrize("kept", [(0, 2), (2, 0), (1,), (3, 1)])
@pytest.mark.parametrize("chunked", [None, (7, 2, 3, 2), (23, 3, 5, 4)])
def test_nan_is_found_piece_by_piece(kept, chunked, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ms, "_PIECE", 100)
    values = np.random.default_rng(0).random((23, 3, 5, 4), dtype="f4")
    values[values < 0.02] = np.nan
    data = xr.DataArray(values, dims=("t", "c", "s", "k"))
    if chunked is not None:
        data.to_dataset(name="v").to_zarr(
            tmp_path / "a", encoding={"v": {"chunks": chunked}}, zarr_format=2
        )
        data = xr.open_zarr(tmp_path / "a", chunks=None)["v"]
    others = tuple(d for d in range(4) if d not in kept)
    expected = np.isnan(values).any(axis=others)
    left = sorted(kept)
    expected = expected.transpose([left.index(d) for d in kept])
    assert np.array_equal(ms.missing(as_array(data, "v"), kept), expected)


def test_integers_have_no_nan() -> None:
    data = xr.DataArray(np.zeros((4, 3), "i2"), dims=("t", "s"))
    assert not ms.missing(as_array(data, "v"), (0, 1)).any()
