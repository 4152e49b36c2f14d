"""The nearest pixel, compared with looking at all of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive import places
from superbatch.errors import ArgumentError

numbers = st.floats(-100, 100, allow_nan=False, width=32)


@given(
    st.lists(numbers, min_size=2, max_size=20, unique=True),
    st.lists(numbers, min_size=1, max_size=30),
    st.sampled_from(["rises", "falls", "neither"]),
    st.sampled_from(["f4", "f8"]),
)
def test_along_any_axis(axis, wanted, order, dtype) -> None:
    axis = np.array(axis, dtype)
    if order != "neither":
        axis = np.sort(axis)[:: 1 if order == "rises" else -1]
    wanted = np.array(wanted)
    position, inside = places.nearest(axis, wanted)
    distance = np.abs(axis.astype("f8")[None, :] - wanted[:, None])
    assert np.allclose(distance[np.arange(len(wanted)), position], distance.min(axis=1), rtol=1e-12)
    rising = np.sort(axis.astype("f8"))
    low = rising[0] - (rising[1] - rising[0]) / 2
    high = rising[-1] + (rising[-1] - rising[-2]) / 2
    assert np.array_equal(inside, (wanted >= low) & (wanted <= high))


@pytest.mark.parametrize("axis", [[0.0, 10.0, 20.0], [20.0, 10.0, 0.0]])
def test_half_way_the_lower_one_is_taken(axis) -> None:
    position, inside = places.nearest(np.array(axis), np.array([5.0, 15.0, -5.0, 25.1, np.nan]))
    assert [axis[p] for p in position[:3]] == [0.0, 10.0, 0.0]
    assert inside.tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("scipy", [True, False])
def test_on_a_turned_grid(scipy, monkeypatch) -> None:
    if not scipy:
        monkeypatch.setitem(sys.modules, "scipy.spatial", None)
        monkeypatch.setattr(places, "_PIECE", 1000)
    rng = np.random.default_rng(0)
    v, u = np.meshgrid(np.arange(23) * 3.0, np.arange(17) * 2.0, indexing="ij")
    y, x = 0.8 * v + 0.6 * u, -0.6 * v + 0.8 * u
    y[0, :3] = np.nan  # such as off the disc of a satellite
    wanted_y, wanted_x = rng.uniform(-10, 90, (2, 40, 10))
    wanted_y[0, 0] = np.inf
    row, column, inside = places.nearest_2d(y, x, wanted_y, wanted_x)
    assert row.shape == column.shape == inside.shape == (40, 10)
    assert not inside[0, 0]
    for at in list(np.ndindex(40, 10))[1:]:
        distance = np.hypot(y - wanted_y[at], x - wanted_x[at])
        assert np.nanmin(distance) == pytest.approx(distance[row[at], column[at]])
        # no farther than the farther neighbour, 3 away
        assert inside[at] == (np.nanmin(distance) <= 3.0 + 1e-9)


def test_there_and_back_between_projections() -> None:
    pytest.importorskip("pyproj")
    lat, lon = np.array([50.0, 55.5, 58.0]), np.array([-5.0, 0.0, -3.2])
    north, east = places.transform("EPSG:4326", "EPSG:27700", lat, lon)
    # Ordnance Survey: the grid's true origin is 2 W, 49 N, at 400 km east and -100 km north
    y, x = places.transform("EPSG:4277", "EPSG:27700", np.array([49.0]), np.array([-2.0]))
    assert np.allclose([y[0], x[0]], [-100_000, 400_000], atol=0.01)
    back = places.transform("EPSG:27700", "EPSG:4326", north, east)
    assert np.allclose(back[0], lat, atol=1e-6)
    assert np.allclose(back[1], lon, atol=1e-6)
    with pytest.raises(ArgumentError, match="is not known"):
        places.transform("EPSG:4326", "EPSG:0", lat, lon)


def test_a_grid_without_places() -> None:
    nothing = np.full((2, 2), np.nan)
    with pytest.raises(ArgumentError, match="no finite place"):
        places.nearest_2d(nothing, nothing, np.zeros(1), np.zeros(1))
