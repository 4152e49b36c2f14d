"""Samples cut from loaded blocks, against slices of the whole array."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.align import align
from superbatch.archive.anchors import Anchors
from superbatch.archive.arrays import as_array
from superbatch.archive.boxes import Box
from superbatch.archive.chunks import Chunks
from superbatch.archive.cut import Cutter, Report
from superbatch.archive.patience import Loaded
from superbatch.archive.sequences import Axis
from superbatch.errors import SuperbatchError
from superbatch.window import Window


def numbered(dims: dict[str, int]) -> xr.DataArray:
    """An array of which every value is its own position."""
    shape = tuple(dims.values())
    return xr.DataArray(np.arange(np.prod(shape), dtype=np.int32).reshape(shape), dims=tuple(dims))


def cutter(windows: dict[str, Window], chunks: dict[str, int], per: int = 1, **also: Any) -> Cutter:
    grid = align(windows)
    axes = [
        Axis(d.name, Chunks.regular(d.length, chunks[d.name]), d.width, per)
        for d in grid.dimensions
    ]
    places = {d.name: d.coordinate for d in grid.dimensions if d.coordinate is not None}
    offset, names = [-d.low for d in grid.dimensions], [d.name for d in grid.dimensions]
    anchors = Anchors(axes, range(len(axes)), offset, names, places)
    cut = Cutter(grid.arrays, grid.cuts, anchors, **also)
    cut.fields = cut.raw_fields()
    return cut


def slot(cut: Cutter, rows: int) -> dict[str, np.ndarray]:
    return {name: np.full((rows, *shape), -1, dtype) for name, (shape, dtype) in cut.fields.items()}


def read(cut: Cutter, boxes: Sequence[Box]) -> list[Loaded]:
    return [Loaded(array.read(box)) for array, box in zip(cut.arrays, boxes, strict=True)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[xr.DataArray, dict[str, Window], dict[str, int], int]:
    dims = {
        "time": draw(st.integers(3, 20)),
        "z": draw(st.integers(1, 3)),
        "x": draw(st.integers(3, 14)),
    }
    data = numbered(dims)
    if draw(st.booleans()):
        data = data.transpose("x", "time", "z")
    windows = {}
    for name in draw(st.sampled_from([["a"], ["a", "b"]])):
        extents = {"time": draw(st.integers(1, dims["time"])), "x": draw(st.integers(1, dims["x"]))}
        if name == "b" and draw(st.booleans()):
            extents.pop(draw(st.sampled_from(["time", "x"])))
        windows[name] = Window(data, **extents)
    grid = align(windows)
    if any(d.width > d.length for d in grid.dimensions):
        windows.pop("b")
    chunks = {"time": draw(st.integers(1, 8)), "x": draw(st.integers(1, 8))}
    return data, windows, chunks, draw(st.integers(1, 3))


@given(cases())
def test_every_window_of_every_sequence_is_the_slice_of_the_array(case) -> None:
    data, windows, chunks, per = case
    cut = cutter(windows, chunks, per)
    low = [d.low for d in align(windows).dimensions]
    for items in np.ndindex(*(2 * axis.blocks for axis in cut.anchors.axes)):
        bounds = [axis.bounds(np.int64(i)) for axis, i in zip(cut.anchors.axes, items, strict=True)]
        every = list(itertools.product(*(range(int(a), int(b)) for a, b in bounds)))
        if not every:
            continue
        starts = np.array(every)
        boxes = cut.boxes(np.array([items]))[0]
        blocks = read(cut, boxes)
        rows = np.arange(len(starts))[::-1].copy()
        out = slot(cut, len(starts))
        report = cut.cut(blocks, boxes, starts, rows, out, [False] * len(blocks))
        assert len(report.rejected) == len(report.unread) == 0
        for start, row in zip(starts.tolist(), rows, strict=True):
            anchor = {
                a.name: s - low_ for a, s, low_ in zip(cut.anchors.axes, start, low, strict=True)
            }
            for name, window in windows.items():
                index = {}
                for dim, extent in window.extents.items():
                    begin = anchor[dim] - extent // 2
                    index[dim] = slice(begin, begin + extent)
                assert np.array_equal(out[name][row], data.isel(index).values)


def test_a_box_is_made_of_whole_chunks_of_its_own_array() -> None:
    fine, coarse = numbered({"t": 24, "x": 8}), numbered({"t": 24, "x": 8})
    cut = cutter({"a": Window(coarse, t=3), "b": Window(fine, t=5)}, {"t": 8})
    cut.arrays = [
        as_array(coarse.chunk({"t": 8}), "a"),
        as_array(fine.chunk({"t": 3, "x": 4}), "b"),
    ]
    for item in range(6):
        low, high = cut.anchors.axes[0].bounds(np.int64(item))
        if high <= low:
            continue
        for array, multiple in ((0, 8), (1, 3)):
            (begin, end), across = cut.boxes(np.array([[item]]))[0][array]
            assert begin % multiple == 0
            assert end % multiple == 0 or end == 24
            assert across == (0, 8)
            # No chunk more than the windows touch.
            size, before = (3, 1) if array == 0 else (5, 0)
            first, last = int(low) + before, int(high) - 1 + before + size
            assert begin <= first < begin + multiple
            assert end - multiple < last <= end


def run(
    cut: Cutter, starts: list[list[int]], bad: Sequence[Box] = ()
) -> tuple[dict[str, np.ndarray], Report]:
    boxes = [tuple((0, n) for n in array.shape) for array in cut.arrays]
    blocks = read(cut, boxes)
    blocks[0].bad = [(box, "lost") for box in bad]
    out = slot(cut, len(starts))
    rows = np.arange(len(starts))
    return out, cut.cut(blocks, boxes, np.array(starts), rows, out, [True] * len(blocks))


def line(**also: Any) -> Cutter:
    data = numbered({"time": 20}).assign_coords(time=np.arange(20) * 10)
    return cutter({"a": Window(data, time=4)}, {"time": 5}, **also)


def test_rejected_rows_are_named_and_the_others_written() -> None:
    cut = line(reject=lambda sample: sample["a"][0] % 2 == 1)
    out, report = run(cut, [[0], [1], [2], [7]])
    assert report.rejected.tolist() == [1, 3]
    assert out["a"][[0, 2]].tolist() == [[0, 1, 2, 3], [2, 3, 4, 5]]


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 9)), max_size=3))
def test_samples_that_touch_what_could_not_be_read_are_left_out(lost) -> None:
    bad = [((begin, min(20, begin + size)),) for begin, size in lost]
    gone = {p for ((begin, end),) in bad for p in range(begin, end)}
    out, report = run(line(), [[start] for start in range(17)], bad)
    unread = [s for s in range(17) if gone & set(range(s, s + 4))]
    assert report.unread.tolist() == unread
    assert len(report.bad) == len(bad)
    for start in set(range(17)) - set(unread):
        assert out["a"][start].tolist() == list(range(start, start + 4))


def test_a_transform_sees_each_sample_and_its_result_is_kept() -> None:
    cut = line(transform=lambda sample: {"mean": sample["a"].mean(keepdims=True)})
    cut.fields = {"mean": ((1,), np.dtype("f8"))}
    out, _ = run(cut, [[0], [5]])
    assert out["mean"].tolist() == [[1.5], [6.5]]


def test_a_sample_is_the_transforms_own() -> None:
    # What a transform does to its sample in place is not seen by the next sample.
    def add(sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        sample["a"] += 100
        return sample

    out, _ = run(line(transform=add), [[3], [3], [4]])
    assert out["a"].tolist() == [[103, 104, 105, 106]] * 2 + [[104, 105, 106, 107]]


# situation: a transform raises; it returns another shape; it returns a key that was not there
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            lambda s: {"a": s["a"][:2]},
            "shape \\(2,\\) where the first sample had .* shape \\(4,\\)",
        ),
        (lambda s: {"a": s["a"].astype("f8")}, "float64 of shape .* had int32"),
        (
            lambda s: {**s, "b": s["a"]},
            "the keys \\['a', 'b'\\] where the first sample had \\['a'\\]",
        ),
        (lambda s: {}, "the keys \\[\\]"),
        (lambda s: s["a"], "transform returned ndarray"),
    ],
)
def test_a_transform_that_changes_its_mind_is_told_so(transform, message) -> None:
    with pytest.raises(SuperbatchError, match=message) as caught:
        run(line(transform=transform), [[0], [6]])
    assert "anchor at time=2 (20)" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("role", ["transform", "reject"])
def test_what_a_users_function_raises_arrives_with_the_anchor(role) -> None:
    def fail(sample: dict[str, np.ndarray]) -> Any:
        if sample["a"][0] == 6:
            raise KeyError("mine")
        return sample if role == "transform" else False

    with pytest.raises(KeyError, match="mine") as caught:
        run(line(**{role: fail}), [[0], [6]])
    assert caught.value.__notes__ == ["at the sample with its anchor at time=8 (80)"]
