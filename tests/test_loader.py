"""What happens inside of a loader process, seen from the training loop."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

import superbatch as sb
from tests.fields import field, write
from tests.processes import ROOT, listening, run_script

WHOLE = field((240, 6))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("loader") / "store.zarr",
        WHOLE,
        dims=("time", "x"),
        chunks=(4, 6),
        coords={"time": np.datetime64("2024-06-01") + np.arange(240) * np.timedelta64(1, "h")},
    ).field


def run(stored, batches=16, loaders=1, batch_size=8, **options):
    source = sb.ArchiveSource(
        {"field": sb.Window(stored, time=5)}, samples=64, sequences=8, **options
    )
    with sb.SuperbatchDataset(
        source, batch_size, loaders=loaders, replays=1, timeout=60
    ) as dataset:
        return list(itertools.islice(dataset, batches))


class OutOfRange(ValueError):
    """An error of the user's own, with a constructor of its own."""

    def __init__(self, value: int, limit: int) -> None:
        super().__init__(f"{value} is above {limit}")
        self.value, self.limit = value, limit

    def __reduce__(self):
        return OutOfRange, (self.value, self.limit)


def far_along(sample):
    """Whether a sample is beyond the first block of the array, which the constructor looks at."""
    return int(sample["field"][0, 0]) >= 6 * 100


# -- exceptions ---------------------------------------------------------------------------------


def test_what_a_transform_raises_arrives_as_it_was(stored):
    def transform(sample):
        if far_along(sample):
            raise OutOfRange(int(sample["field"][0, 0]), 600)  # this very line
        return sample

    with pytest.raises(OutOfRange) as caught:
        run(stored, transform=transform)
    error = caught.value
    assert type(error) is OutOfRange
    assert (error.limit, str(error)) == (600, f"{error.value} is above 600")
    text = "".join(traceback.format_exception(error))
    assert "raise OutOfRange(int(sample" in text
    assert "this very line" in text
    assert f'File "{__file__}", line ' in text
    assert "in transform" in text
    # The note says which sample it was: the anchor along time is the window's first position.
    (note,) = [n for n in error.__notes__ if "anchor" in n]
    at = error.value // 6
    stamp = np.datetime64("2024-06-01") + at * np.timedelta64(1, "h")
    assert f"time={at} ({stamp.astype('datetime64[ns]')})" in note


def test_causes_and_notes_travel_too(stored):
    def transform(sample):
        if far_along(sample):
            try:
                {}["missing"]
            except KeyError as error:
                error.add_note("a note on the cause")
                raise RuntimeError("no such station") from error
        return sample

    with pytest.raises(RuntimeError, match="no such station") as caught:
        run(stored, transform=transform)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "a note on the cause" in caught.value.__cause__.__notes__


def test_an_exception_that_cannot_travel_arrives_as_its_text(stored):
    def transform(sample):
        if far_along(sample):
            error = OSError("the sensor is gone")
            error.lock = threading.Lock()  # cannot be pickled
            raise error
        return sample

    with pytest.raises(sb.SuperbatchError, match="the sensor is gone") as caught:
        run(stored, transform=transform)
    assert "OSError" in str(caught.value)
    assert "raise error" in str(caught.value)
    assert "anchor at time=" in str(caught.value)


def _other_shape(sample):
    return {"field": sample["field"][: 4 if far_along(sample) else 5]}


def _other_dtype(sample):
    return {"field": sample["field"].astype("f4" if far_along(sample) else "i4")}


def _new_key(sample):
    return {**sample, "new": sample["field"]} if far_along(sample) else sample


def _lost_key(sample):
    return {} if far_along(sample) else sample


def _no_dict(sample):
    return [sample] if far_along(sample) else sample


@pytest.mark.parametrize(
    ("transform", "sentence"),
    [
        (_other_shape, r"shape \(4, 6\) where the first sample had int32 of shape \(5, 6\)"),
        (_other_dtype, r"as float32 of shape .* where the first sample had int32"),
        (_new_key, r"keys \['field', 'new'\] where the first sample had \['field'\]"),
        (_lost_key, r"keys \[\] where the first sample had \['field'\]"),
        (_no_dict, r"transform returned list"),
    ],
)
def test_a_transform_that_changes_its_mind_is_named_with_the_sample(stored, transform, sentence):
    with pytest.raises(sb.SuperbatchError, match=sentence) as caught:
        run(stored, transform=transform)
    assert "\n" not in str(caught.value)
    (note,) = caught.value.__notes__
    assert "anchor at time=" in note


def test_an_error_in_reject_arrives_with_the_sample(stored):
    def reject(sample):
        return 1 // (0 if far_along(sample) else 1) == 0

    with pytest.raises(ZeroDivisionError) as caught:
        run(stored, reject=reject)
    assert any("anchor at time=" in note for note in caught.value.__notes__)
    assert "in reject" in "".join(traceback.format_exception(caught.value))


def test_a_transform_that_fails_on_the_first_sample_fails_in_the_constructor(stored):
    def transform(sample):
        raise OutOfRange(1, 0)

    with pytest.raises(OutOfRange):
        sb.ArchiveSource({"field": sb.Window(stored, time=5)}, transform=transform)


def test_a_source_that_cannot_be_unpacked_in_a_loader_says_so(stored):
    class Awkward:
        def __call__(self, sample):
            return sample

        def __reduce__(self):
            return (_only_here, (sys.argv[0],))

    with pytest.raises(RuntimeError, match="not in a loader") as caught:
        run(stored, transform=Awkward())
    assert "while a loader unpacked the source" in "".join(caught.value.__notes__)


def _only_here(argument):
    raise RuntimeError("not in a loader")


def test_a_transform_may_be_a_closure_over_what_the_loop_knows(stored):
    shift, table = 7, np.arange(WHOLE.size + 7) * 2

    def transform(sample):
        return {"field": sample["field"], "twice": table[sample["field"] + shift]}

    for batch in run(stored, transform=transform):
        np.testing.assert_array_equal(batch["twice"], 2 * (batch["field"] + shift))


# -- the process --------------------------------------------------------------------------------


def test_a_loader_listens_at_no_port_and_has_no_torch(stored):
    def transform(sample):
        import sys

        return {**sample, "torch": np.array(["torch" in sys.modules, "dask" in sys.modules])}

    source = sb.ArchiveSource(
        {"field": sb.Window(stored, time=5)}, samples=64, sequences=8, transform=transform
    )
    with sb.SuperbatchDataset(source, 8, loaders=2, replays=1) as dataset:
        batches = list(itertools.islice(dataset, 16))
        pids = dataset._loaders.pids
        assert [listening(pid) for pid in pids] == [[], []]
        for pid in pids:
            with open(f"/proc/{pid}/maps") as maps:
                assert "torch" not in maps.read()
    for batch in batches:
        assert batch["torch"].tolist() == [[False, True]] * 8


def test_a_loader_leaves_the_cores_to_the_loop(stored):
    with sb.SuperbatchDataset(
        sb.ArchiveSource({"field": sb.Window(stored, time=5)}, samples=64), 8, timeout=60
    ) as dataset:
        next(iter(dataset))
        (pid,) = dataset._loaders.pids
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, ours + 5)


def test_what_a_transform_prints_is_not_lost(stored, capfd):
    def transform(sample):
        print("one sample")  # not flushed
        return sample

    run(stored, batches=8, transform=transform)
    shown = capfd.readouterr()
    assert shown.out.count("one sample") >= 65  # the first is cut in the constructor
    assert shown.err == ""


UNGUARDED = """
import numpy as np, xarray as xr, torch
import superbatch as sb

print("the script runs")
field = xr.DataArray(np.arange(600, dtype="int32").reshape(100, 6), dims=("time", "x"))
LIMIT = 1000

class TooLarge(Exception):
    pass

def transform(sample):
    if (sample["field"] > LIMIT).any():
        raise TooLarge(f"above {LIMIT}")
    return {"field": sample["field"], "half": sample["field"] / 2}

source = sb.ArchiveSource({"field": sb.Window(field, time=4)}, samples=32, transform=transform)
dataset = sb.SuperbatchDataset(source, 8, loaders=2, replays=1, batches_per_epoch=8)
for batch in dataset:
    first = batch["field"][:, :1, :1]
    expected = first + torch.arange(24, dtype=torch.int32).reshape(1, 4, 6)
    assert torch.equal(batch["field"], expected) and torch.equal(batch["half"], expected / 2)
print("loaders", len(dataset._loaders.pids))

LIMIT = 500
dataset = sb.SuperbatchDataset(source, 8, replays=1)
try:
    for batch in dataset:
        pass
except TooLarge as error:
    print("caught", type(error) is TooLarge, error)
"""


def test_a_script_without_a_guard_just_works(tmp_path):
    # Loaders are fresh interpreters that do not import the script: nothing in it runs twice, and a
    # class that it defines is the same class when it comes back.
    done = run_script(tmp_path, UNGUARDED)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "the script runs",
        "loaders 2",
        "caught True above 500",
    ]


def test_a_script_from_standard_input_works_too(tmp_path):
    done = subprocess.run(
        [sys.executable, "-"],
        input=UNGUARDED,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == "", done.stderr
    assert done.stdout.splitlines()[-1] == "caught True above 500"
