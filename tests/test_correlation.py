"""The correlation within a sequence, where it is known."""

from __future__ import annotations

import numpy as np
import pytest

import superbatch as sb
from superbatch.correlation import estimate_correlation, intraclass
from tests.fields import write_plain

CHUNK = 12


def made(tmp_path, shared: float, chunks: int = 400, values: int = 6):
    """An array whose chunks each have a level of their own, with so much of the variance."""
    rng = np.random.default_rng(3)
    level = np.repeat(rng.normal(size=(chunks, values)), CHUNK, axis=0)
    noise = rng.normal(size=(chunks * CHUNK, values))
    whole = np.sqrt(shared) * level + np.sqrt(1 - shared) * noise
    stored = write_plain(
        tmp_path / "a.zarr", whole, chunks=(CHUNK, values), dimension_names=("time", "x")
    )
    return {"a": sb.Window(stored, time=1)}


@pytest.mark.parametrize("shared", [0.0, 0.3, 0.9, 1.0])
def test_it_is_the_share_of_variance_between_sequences(tmp_path, shared) -> None:
    windows = made(tmp_path, shared)
    source = sb.ArchiveSource(windows, chunks_per_sequence=1)
    found = estimate_correlation(source, sequences=200, samples=6)
    assert found == pytest.approx(shared, abs=0.06)
    # three chunks in a sequence: two samples of it are of one chunk in a third of all cases
    longer = sb.ArchiveSource(windows, chunks_per_sequence=3)
    assert estimate_correlation(longer, sequences=100, samples=30) == pytest.approx(
        shared / 3, abs=0.06
    )


def test_it_is_that_of_a_textbook() -> None:
    """Shrout and Fleiss 1979, table 2: six targets, four judges; ICC(1,1) is 0.17."""
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    groups = [np.array(row, dtype=float)[:, None] for row in ratings]
    assert intraclass(groups) == pytest.approx(0.17, abs=0.005)


def test_what_tells_nothing_is_none() -> None:
    one = np.ones((4, 3))
    assert intraclass([one]) is None
    assert intraclass([one, one]) is None
    assert intraclass([one[:1], 2 * one[:1]]) is None
    # a value that is missing somewhere is left out
    left, right = np.arange(6.0).reshape(3, 2), 9 + np.arange(6.0).reshape(3, 2)
    holes = left.copy()
    holes[1, 1] = np.nan
    assert intraclass([holes, right]) == intraclass([left[:, :1], right[:, :1]])


def test_what_is_wrong_is_said_in_a_sentence(tmp_path) -> None:
    source = sb.ArchiveSource(made(tmp_path, 0.5, chunks=5))
    with pytest.raises(sb.SuperbatchError, match=r"sequences=1 tells nothing"):
        estimate_correlation(source, sequences=1)
    with pytest.raises(sb.SuperbatchError, match=r"name='b' is no array .* write one of a"):
        estimate_correlation(source, "b")
