"""Wrong arguments: one sentence that says what to write instead, in the constructor."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import superbatch as sb
from superbatch import stream
from superbatch.errors import ArgumentError
from superbatch.source import Settings
from tests import tally

PACKAGE = str(Path(sb.__file__).parent)
HINTS = (
    "write",
    "use",
    "give",
    "lower",
    "shorten",
    "select",
    "hand over",
    "leave",
    "sort",
    "name",
    "make",
    "return",
    "such as",
    "must",
    "needs",
    "need",
)


def check_sentence(error: BaseException) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 500
    assert any(hint in text for hint in HINTS), text


FIELD = xr.DataArray(
    np.arange(40 * 12 * 9, dtype="f4").reshape(40, 12, 9),
    dims=("time", "y", "x"),
    coords={
        "time": np.datetime64("2020-01-01", "ns") + np.arange(40) * np.timedelta64(3600, "s"),
        "y": np.arange(12.0),
    },
)
WINDOWS = {"field": sb.Window(FIELD, time=4, y=6)}
PLAIN = {"field": sb.Window(FIELD.drop_vars("time"), time=4)}


def source(windows: Any = None, **arguments: Any) -> sb.ArchiveSource:
    return sb.ArchiveSource(WINDOWS if windows is None else windows, **arguments)


def bind(made: sb.ArchiveSource, **changed: Any) -> Any:
    given_ = {"batch_size": 8, "seed": 0, "rank": 0, "world_size": 1, "shuffle": True}
    return made.bind(Settings(**{**given_, "loaders": 1, "threads": 1, **changed}))


# -- Window --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "kind", "message"),
    [
        (0, ArgumentError, "at least one position: write time=1 or more"),
        (-3, ArgumentError, "at least one position"),
        (2.0, TypeError, "is a number of positions, such as time=12"),
        ("12", TypeError, "is a number of positions"),
        (True, TypeError, "is a number of positions"),
        (None, TypeError, "is a number of positions"),
        ((1, 2), TypeError, "is a number of positions"),
        (np.array([1, 2]), TypeError, "is a number of positions"),
        (slice(None, "1h"), ArgumentError, "a slice needs both ends and no step"),
        (slice("1h"), ArgumentError, "a slice needs both ends and no step"),
        (slice("-1h", "1h", "10min"), ArgumentError, "a slice needs both ends and no step"),
    ],
)
def test_wrong_extents(extent, kind, message) -> None:
    with pytest.raises(kind, match=message) as caught:
        sb.Window(FIELD, time=extent)
    check_sentence(caught.value)


@pytest.mark.parametrize("extent", [1, np.int64(3), np.uint8(3), np.array(3), slice("-1h", "1h")])
def test_right_extents(extent) -> None:
    assert source({"field": sb.Window(FIELD, time=extent)}).describe()["windows"] > 0


# -- ArchiveSource -------------------------------------------------------------------------------

HOURS = {"field": sb.Window(FIELD, time=slice("-2h", "1h"))}
DISORDERED = FIELD.isel(time=[0, 1, 3, 2, 4, 4, 5])


@pytest.mark.parametrize(
    ("windows", "arguments", "message"),
    [
        # what a sample is
        ({}, {}, "windows is dict: write a dict of Window by name"),
        (FIELD, {}, "windows is DataArray: write a dict"),
        (sb.Window(FIELD, time=2), {}, "windows is Window: write a dict"),
        ({"field": FIELD}, {}, "'field' is DataArray: write sb.Window"),
        ({3: sb.Window(FIELD, time=2)}, {}, "3 cannot name a modality: write a str"),
        ({"a": sb.Window(FIELD, z=2)}, {}, "'z', which its array does not have: write one of time"),
        ({"a": sb.Window(FIELD, time=41)}, {}, "is 41 long in 'time', where the array has 40"),
        ({"a": sb.Window(FIELD)}, {}, "no dimension is windowed"),
        ({"a": sb.Window(np.zeros(9), x=2)}, {}, "hand over an xarray.DataArray or a zarr.Array"),
        ({"a": sb.Window("store.zarr", x=2)}, {}, "hand over an xarray.DataArray or a zarr.Array"),
        ({"a": sb.Window(FIELD.to_dataset(name="sat"), time=2)}, {}, "one of its variables"),
        ({"a": sb.Window(FIELD[:, :0], time=2)}, {}, "no positions in 'y'"),
        ({"a": sb.Window(FIELD[:0], time=2)}, {}, "no positions in 'time'"),
        (
            {"a": sb.Window(FIELD, time=25), "b": sb.Window(FIELD, time=slice("-20h", "0h"))},
            {},
            "together are 45 long in 'time', where the array has 40",
        ),
        # situation: duplicated stamps, one stamp out of order
        ({"a": sb.Window(DISORDERED, time=2)}, {}, "2 stamps of 'time' repeat or go back"),
        # numbers of things
        (None, {"samples": 0}, "samples=0 is not a number of things: write an int, 1 or more"),
        (None, {"samples": 2.5}, "samples=2.5 is not a number of things"),
        (None, {"samples": True}, "samples=True is not a number of things"),
        (None, {"samples": 2**70}, "samples=.* is more than"),
        (None, {"sequences": -1}, "sequences=-1 is not a number of things"),
        (None, {"sequences": "32"}, "sequences='32' is not a number of things"),
        (None, {"chunks_per_sequence": 0}, "chunks_per_sequence=0 is not a number of things"),
        (
            None,
            {"chunks_per_sequence": {"x": 2}},
            "names 'x', which is not windowed: write one of time",
        ),
        (None, {"chunks_per_sequence": {"y": None}}, "chunks_per_sequence\\['y'\\]=None is not"),
        (None, {"turnover": 0}, "turnover=0 is not a share: write a number above 0 and up to 1"),
        (None, {"turnover": 1.5}, "turnover=1.5 is not a share"),
        (None, {"turnover": np.nan}, "turnover=nan is not a share"),
        (None, {"turnover": "half"}, "turnover='half' is not a share"),
        (None, {"turnover": True}, "turnover=True is not a share"),
        (None, {"memory": "lots"}, "'lots' is not a number of bytes: write one such as \"8GB\""),
        (None, {"memory": -1}, "-1 is not a number of bytes"),
        # what is drawn
        (None, {"coverage": "twice"}, 'coverage=\'twice\' is not known: write "random" or "once"'),
        (None, {"coverage": None}, "coverage=None is not known"),
        (None, {"coverage": np.array(["once", "random"])}, "is not known"),
        (None, {"coverage": "once", "turnover": 0.5}, 'needs coverage="random"'),
        (None, {"coverage": "once", "weights": np.ones(40)}, 'weights need coverage="random"'),
        (None, {"sites": FIELD}, "write an xarray.Dataset with the places"),
        (None, {"valid": np.ones(39, bool)}, "one bool for each of the 40 positions of 'time'"),
        (
            None,
            {"valid": np.zeros(40, bool)},
            "no window of length 4 is left .* 40 positions .*37 by valid",
        ),
        (None, {"valid": [slice("2021", "2022")]}, "no window of length 4 is left"),
        (None, {"weights": np.zeros(40)}, "no window of length 4 is left .*37 by weight 0"),
        (None, {"weights": np.full(40, np.nan)}, "weights has nan in it"),
        (HOURS, {"valid": np.arange(40) < 2}, "no window of length 4 is left"),
        # functions
        (
            None,
            {"transform": "normalise"},
            "transform='normalise' is not callable: write a function",
        ),
        (None, {"reject": 3}, "reject=3 is not callable: write a function"),
        (None, {"transform": lambda s: {}}, "transform returned an empty dict"),
        (None, {"transform": lambda s: None}, "transform returned NoneType"),
        (None, {"transform": lambda s: {"a": np.array(["x"])}}, "which no tensor can hold"),
        (None, {"transform": lambda s: {"a": [[1], [1, 2]]}}, "transform returned 'a'"),
        (None, {"transform": lambda s: {3: s["field"]}}, "transform returned the key 3"),
    ],
)
def test_wrong_arguments_of_a_source(windows, arguments, message) -> None:
    with pytest.raises(
        (ArgumentError, ValueError, TypeError, sb.SuperbatchError), match=message
    ) as caught:
        source(windows, **arguments)
    check_sentence(caught.value)


@pytest.mark.parametrize(
    ("arguments", "changed", "message"),
    [
        ({}, {"batch_size": None}, "batch_size=None needs a stream"),
        (
            {"samples": 4},
            {},
            "batch_size=8 is larger than the superbatch of samples=4: write batch_size=4",
        ),
        ({"memory": "1MB"}, {}, "memory=1 MB is too little for one sequence"),
        (
            {"coverage": "once"},
            {"rank": 0, "world_size": 999},
            "999 ranks cannot share 259 valid windows",
        ),
        ({"coverage": "once"}, {"batch_size": 1, "rank": 0, "world_size": 2}, "write batch_size=2"),
        (
            {"coverage": "once", "reject": lambda s: False},
            {"rank": 0, "world_size": 2},
            "unequal numbers of batches",
        ),
    ],
)
def test_wrong_arguments_that_show_when_a_dataset_is_made(arguments, changed, message) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        bind(source(**arguments), **changed)
    check_sentence(caught.value)


def test_what_a_users_transform_raises_is_not_ours_to_reword() -> None:
    class Mine(Exception):
        pass

    def fail(sample: dict[str, Any]) -> Any:
        raise Mine

    with pytest.raises(Mine):
        source(transform=fail)


# -- SuperbatchDataset ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 is not a number of things: write an int, 1 or more"),
        ({"batch_size": "8"}, "batch_size='8' is not a number"),
        ({"batch_size": 10**6}, "batch_size=1000000 is larger than the superbatch"),
        ({"loaders": 0}, "loaders=0 is not a number"),
        ({"loaders": 1.5}, "loaders=1.5 is not a number"),
        ({"threads": 0}, "threads=0 is not a number"),
        ({"restarts": -1}, "restarts=-1 is not a number"),
        ({"seed": -1}, "seed=-1 is not a number"),
        ({"seed": "lucky"}, "seed='lucky' is not a number"),
        ({"batches_per_epoch": 0}, "batches_per_epoch=0 is not a number"),
        ({"replays": 0}, "replays=0 is no range: write 1 <= least <= most"),
        ({"replays": (3, 1)}, "is no range"),
        ({"replays": "often"}, "is not a number of passes"),
        ({"rank": 0}, "rank=0 and world_size=None: give both, or neither"),
        ({"rank": 3, "world_size": 3}, "rank=3 is not one of world_size=3 ranks: write 0 to 2"),
        ({"transport": "pigeon"}, "transport='pigeon' is not known: write one of 'shared', 'pipe'"),
        ({"transport": ["shared"]}, "transport=.* is not known"),
        ({"timeout": 0}, "timeout=0 is not a time: write a number of seconds above 0"),
        ({"timeout": None}, "timeout=None is not a time"),
        ({"dask": 8786}, "dask is int: write a scheduler's address"),
        ({"device": "toaster"}, "device='toaster'"),
        ({"device": 3.5}, "device=3.5"),
    ],
)
def test_wrong_arguments_of_a_dataset(arguments, message) -> None:
    with pytest.raises((ArgumentError, TypeError, sb.SuperbatchError), match=message) as caught:
        sb.SuperbatchDataset(source(samples=16), **{"batch_size": 8, **arguments})
    check_sentence(caught.value)


def test_a_source_that_is_none() -> None:
    with pytest.raises(TypeError, match="source is dict: write a source") as caught:
        sb.SuperbatchDataset({}, batch_size=8)  # type: ignore[arg-type]
    check_sentence(caught.value)


# -- anything at all -----------------------------------------------------------------------------

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 50),
    st.sampled_from([2**31, 2**63, 2**70, -(2**70)]),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.sampled_from(
        ["8GB", "1h", "-30min", "2020", "random", "once", "auto", "shared", "cpu", "NaT"]
    ),
    st.lists(st.one_of(st.integers(-2, 3), st.booleans(), st.text(max_size=2)), max_size=4),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.dictionaries(st.sampled_from(["time", "y", "x", "z"]), st.integers(-1, 5), max_size=2),
    st.sampled_from(
        [
            slice(None),
            slice(0, 3),
            slice("-2h", "1h"),
            slice("1h", "-2h"),
            slice("2020-01-01", "2020-01-02"),
            [slice("2020-01-01", "2020-01-02")],
            [slice(None), slice(3, 1)],
            [slice(0, 9, 2)],
            np.ones(40, bool),
            np.arange(40),
            np.zeros(40),
            np.ones((2, 2)),
            np.array("x"),
            np.int64(3),
            np.float32(0.5),
            np.datetime64("2020-01-01"),
            np.timedelta64("NaT"),
            np.timedelta64(2, "h"),
            complex(1, 2),
            object(),
            FIELD,
            FIELD["time"],
        ]
    ),
    st.sampled_from(
        [
            lambda x: x,
            lambda x: np.ones(40, bool),
            lambda x: None,
            lambda x: {"field": 1.0},
            lambda x: {"field": "text"},
            lambda x: [slice(None)],
        ]
    ),
)


def works_or_says_why(make: Callable[[], Any]) -> Any:
    """What ``make`` returns, or None where it refused in one sentence of ours."""
    try:
        made = make()
        tally.inputs["worked"] += 1
        return made
    except (ValueError, TypeError, sb.SuperbatchError) as error:
        tally.inputs["refused"] += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        if not last.filename.startswith(PACKAGE):
            raise AssertionError(f"a library's {error!r} at {last}") from error
        check_sentence(error)
        return None


def windows_of(extents: dict[str, Any], data: Any) -> dict[str, sb.Window]:
    return {"field": sb.Window(data, **extents)}


ARRAYS = [
    FIELD,
    FIELD.drop_vars("time"),
    FIELD[::-1],
    FIELD.isel(time=[0, 1, 2, 10, 11, 12]),
    FIELD.isel(time=[5] * 4),
    FIELD[:1],
    FIELD.chunk({"time": (24, 9, 7), "y": 5}),
    FIELD.astype("M8[s]"),
    FIELD.astype(str),
    FIELD["time"],
    FIELD.to_dataset(name="a"),
    FIELD.values,
    None,
]


OPTIONS = (
    "edge",
    "nan",
    "mask",
    "dtype",
    "mean",
    "std",
    "dropout",
    "decode",
    "normalize",
    "crs",
    "at",
)


@settings(max_examples=400)
@given(
    st.dictionaries(st.sampled_from(["time", "y", "x", "z", *OPTIONS]), junk, max_size=2),
    st.sampled_from(ARRAYS),
)
def test_any_window_works_or_says_why_not(extents, data) -> None:
    made = works_or_says_why(lambda: source(windows_of(extents, data), samples=4, sequences=2))
    if made is not None:
        assert len(bind(made, batch_size=2).plan.superbatch(0, 1).starts) == 4


FORECASTS = [
    xr.DataArray(
        np.zeros((6, 5, 12)),
        {
            "init": np.datetime64("2020-01-01", "ns") + np.arange(6) * np.timedelta64(3, "h"),
            "step": steps,
        },
        ("init", "step", "y"),
    )
    for steps in (
        np.arange(5),
        np.arange(5) * np.timedelta64(1, "h"),
        [0, 1, 3, 2, 4],
        list("abcde"),
    )
]


@settings(max_examples=400)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "init_time",
                "step",
                "time",
                "delay",
                "past",
                "max_age",
                "late",
                "accumulated",
                "y",
                "z",
                *OPTIONS,
            ]
        ),
        junk,
        max_size=2,
    ),
    st.sampled_from([*FORECASTS, FIELD, None]),
)
def test_any_forecast_works_or_says_why_not(extents, data) -> None:
    given_ = {"init_time": "init", "step": "step", "time": slice("0h", "1h"), "y": 2, **extents}
    made = works_or_says_why(
        lambda: source({"field": WINDOWS["field"], "nwp": sb.Forecast(data, **given_)})
    )
    if made is not None:
        works_or_says_why(lambda: bind(made))


def no_host(given: Any) -> Any:
    """Not a text that might be the name of a machine: nobody is to be called up."""
    return f"127.0.0.1:{given}" if isinstance(given, str) else given


PARTS: list[Callable[..., Any]] = [
    stream.Ring,
    stream.Bounded,
    stream.LRU,
    stream.Rounds,
    lambda given: stream.Reservoir(given),
    lambda given: stream.Reservoir(1000, given),
    lambda given: stream.Producer(no_host(given), "sim0", timeout=0.01),
    lambda given: stream.Producer("127.0.0.1:1", given, timeout=0.01),
    lambda given: stream.Producer("127.0.0.1:1", "sim0", given, timeout=0.01),
    lambda given: stream.StreamSource(given, "sim0", stream.Rounds(2), timeout=0.01),
    lambda given: stream.StreamSource("127.0.0.1:1", given, stream.Rounds(2), timeout=0.01),
    lambda given: stream.StreamSource("127.0.0.1:1", "sim0", given, timeout=0.01),
    lambda given: stream.StreamSource("127.0.0.1:1", "sim0", stream.Rounds(2), timeout=given),
    lambda given: stream.publish_model("127.0.0.1:1", "net", given, timeout=0.01),
    lambda given: stream.Server(no_host(given)) if given is not None else None,
    lambda given: stream.Server(port=given) if given is not None else None,
    lambda given: stream.Server(maxmemory=given) if isinstance(given, str) else None,
    lambda given: stream.Gateway(no_host(given), timeout=0.1),
    lambda given: stream.Gateway("127.0.0.1:1", timeout=given),
]


@settings(max_examples=400)
@given(st.sampled_from(PARTS), junk)
def test_any_part_of_a_stream_works_or_says_why_not(part, given_) -> None:
    made = works_or_says_why(lambda: part(given_))
    if hasattr(made, "close"):
        made.close()


SOURCE = (
    "samples",
    "sequences",
    "chunks_per_sequence",
    "turnover",
    "coverage",
    "valid",
    "weights",
    "reject",
    "transform",
    "memory",
    "on_error",
    "retries",
    "read_timeout",
)


@settings(max_examples=500)
@given(
    st.dictionaries(st.sampled_from(SOURCE), junk, min_size=1, max_size=3),
    st.sampled_from([WINDOWS, PLAIN, HOURS]),
)
def test_any_source_works_or_says_why_not(arguments, windows) -> None:
    made = works_or_says_why(
        lambda: source(windows, **{"samples": 16, "sequences": 2, **arguments})
    )
    if made is not None:
        feed = works_or_says_why(lambda: bind(made))
        if feed is not None:
            made.describe()
            if feed.plan.samples < 10_000:
                assert len(feed.plan.superbatch(0, 0).starts) == feed.plan.size(0)


DATASET = (
    "batch_size",
    "loaders",
    "threads",
    "replays",
    "batches_per_epoch",
    "seed",
    "rank",
    "world_size",
    "device",
    "dask",
    "transport",
    "restarts",
    "timeout",
)
SMALL = source(samples=16, sequences=2)


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(DATASET), junk, min_size=1, max_size=3))
def test_any_dataset_works_or_says_why_not(arguments) -> None:
    if isinstance(arguments.get("loaders"), int) and arguments["loaders"] > 10**3:
        arguments["loaders"] = 3  # as many slots would take long to make
    made = works_or_says_why(lambda: sb.SuperbatchDataset(SMALL, **{"batch_size": 8, **arguments}))
    if made is not None:
        made.close()


# -- situations ----------------------------------------------------------------------------------


# situation: exactly one window, and none
def test_one_window_and_none() -> None:
    made = source({"field": sb.Window(FIELD, time=40, y=12)})
    assert made.describe()["windows"] == 1
    starts = bind(made).plan.superbatch(0, 0).starts
    assert (starts == 0).all()
    with pytest.raises(ArgumentError, match="41 long in 'time', where the array has 40"):
        source({"field": sb.Window(FIELD, time=41)})


# situation: irregular chunks along a dimension in a Dask-backed array
def test_a_dask_array_with_irregular_chunks() -> None:
    data = FIELD.isel(time=slice(0, 36)).chunk({"time": (16, 13, 7)})
    made = source(
        {"field": sb.Window(data, time=5)}, chunks_per_sequence=1, sequences=3, samples=64
    )
    found = {tuple(s) for i in range(40) for s in bind(made).plan.superbatch(0, i).starts.tolist()}
    assert found == {(s,) for s in range(32)}
    items = [int(i) for i in made.axes[0].owner(np.arange(32))]
    assert items == [0] * 12 + [1] * 4 + [2] * 9 + [3] * 4 + [4] * 3


# situation: fewer windows than batch_size, fewer than the number of loaders
def test_few_windows_many_loaders() -> None:
    few = {"field": sb.Window(FIELD, time=39)}
    made = source(few, samples=64, coverage="once")
    with sb.SuperbatchDataset(made, batch_size=32, loaders=4, replays=1) as dataset:
        assert len(dataset) == 1
    feed = bind(made, batch_size=32, loaders=4)
    assert feed.plan.batch_sizes(0) == [2]
    assert feed.samples == 2
    again = bind(source(few, samples=64), batch_size=32, loaders=4)
    assert set(again.plan.superbatch(0, 3).starts.ravel().tolist()) == {0, 1}


# situation: missing hours; no window crosses a gap, and what was ruled out is told
def test_gaps_are_respected_and_reported() -> None:
    gappy = FIELD.isel(time=[*range(10), *range(14, 40)])
    made = source(
        {"field": sb.Window(gappy, time=4)}, valid=lambda t: t < np.datetime64("2020-01-02")
    )
    assert made.describe()["ruled_out"] == {"time": {"gap": 3, "valid": 13}}
    starts = set(bind(made).plan.superbatch(0, 0).starts.ravel().tolist())
    assert starts <= {*range(7), *range(10, 20)}


# situation: an archive of a million chunks and more, most of them absent
def test_a_million_chunks_are_planned_as_fast_as_a_hundred(tmp_path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(36 * 2_000_000, 64, 64),
        chunks=(36, 64, 64),
        dtype="i2",
        dimension_names=("time", "y", "x"),
    )
    made = source({"field": sb.Window(array, time=4, y=16, x=16)}, samples=64, sequences=8)
    starts = bind(made).plan.superbatch(0, 7).starts
    assert starts[:, 0].max() > 36 * 1_000_000
    assert len(np.unique(starts[:, 0])) > 32


# -- what a resumed state is compared with --------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"chunks_per_sequence": 2},
        {"valid": np.arange(40) != 20},
        {"weights": np.arange(1.0, 41.0)},
        {"sequences": 3},
        {"samples": 32},
        {"turnover": 0.5},
        {"coverage": "once"},
    ],
)
def test_a_fingerprint_tells_sources_apart(changed) -> None:
    chunked = {"field": sb.Window(FIELD.chunk({"time": 5, "y": 4, "x": 9}), time=4)}
    settings_ = {"samples": 64, "sequences": 2, "chunks_per_sequence": 1}
    one = bind(source(chunked, **settings_)).fingerprint()
    assert bind(source(chunked, **settings_)).fingerprint() == one
    assert bind(source(chunked, **{**settings_, **changed})).fingerprint() != one
    assert all(isinstance(value, (int, str, bool)) for value in one.values())


def test_masks_of_equally_many_windows_are_told_apart() -> None:
    one = bind(source(PLAIN, valid=np.arange(40) < 30)).fingerprint()
    other = bind(source(PLAIN, valid=np.arange(40) >= 11)).fingerprint()
    assert one["windows"] == other["windows"]
    assert one != other
