"""Loaders that die, hang or lose their training process; nothing may hang, or be left behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import superbatch as sb
from superbatch.errors import LoaderDied, LoaderTimeout
from tests import processes
from tests.fields import corners, field, write_plain
from tests.processes import all_gone, holders, lines, script, shared_memory

WHOLE = field((240, 6))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("supervise") / "field.zarr"
    return write_plain(path, WHOLE, chunks=(4, 6), dimension_names=("time", "x"))


@pytest.fixture
def dataset(stored):
    made = []

    def make(batch_size=8, transform=None, **options):
        source = sb.ArchiveSource(
            {"field": sb.Window(stored, time=5)}, samples=64, sequences=8, transform=transform
        )
        made.append(sb.SuperbatchDataset(source, batch_size, **{"replays": 1} | options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def slow(sample):
    """A superbatch takes six seconds: whatever ends earlier was not waited for."""
    time.sleep(0.1)
    return sample


# -- loaders that die ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_loader_that_is_killed_while_the_loop_waits_is_named(dataset, number):
    one = dataset(transform=slow, loaders=2)
    batches = iter(one)  # loaders start
    pids = one._loaders.pids
    os.kill(pids[1], number)
    began = time.monotonic()
    with pytest.raises(LoaderDied) as caught:
        next(batches)
    assert time.monotonic() - began < 2
    message = str(caught.value)
    assert f"loader 1 (process {pids[1]}) was killed by signal {int(number)}" in message
    assert f"({number.name})" in message
    assert "restarts=1" in message
    assert "\n" not in message
    assert all_gone(pids, 2)


def test_a_loader_that_is_killed_while_the_loop_serves_is_noticed_in_time(dataset):
    one = dataset(replays=100_000)  # the superbatch at hand would last for hours
    batches = iter(one)
    next(batches)
    (pid,) = one._loaders.pids
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    within = itertools.takewhile(lambda _: time.monotonic() - began < 2, batches)
    with pytest.raises(LoaderDied, match=f"process {pid}"):
        deque(within, maxlen=0)
    assert time.monotonic() - began < 2


def test_a_loader_that_ends_by_itself_is_named_with_its_exit_code(dataset):
    def leaves(sample):
        if int(sample["field"][0, 0]) > 600:
            os._exit(3)
        return sample

    one = dataset(transform=leaves)
    with pytest.raises(LoaderDied, match=r"ended with exit code 3 while it made superbatch \d"):
        list(itertools.islice(one, 100))


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        (EOFError, "shared"),
        (EOFError, "pipe"),
        (ConnectionResetError, "shared"),
        (CancelledError, "shared"),
        (TimeoutError, "shared"),
    ],
)
def test_a_failure_that_looks_like_a_lost_connection_is_told_as_it_was(dataset, kind, transport):
    """A chunk that was cut short, a store that resets: not the loader's own connection."""

    def fails(sample):
        if int(sample["field"][0, 0]) > 600:
            raise kind("the station is closed")
        return sample

    one = dataset(transform=fails, transport=transport, loaders=2)
    with pytest.raises(kind, match="the station is closed") as caught:
        list(itertools.islice(one, 100))
    assert any("anchor at" in note for note in caught.value.__notes__)


def test_restarts_make_the_same_samples_again(dataset):
    plain = dataset(seed=7)
    expected = [batch["field"].numpy() for batch in itertools.islice(plain, 64)]
    one = dataset(seed=7, restarts=3, loaders=2)
    killed = set()
    for number, batch in enumerate(itertools.islice(one, 64)):
        np.testing.assert_array_equal(batch["field"], expected[number])
        if number in (3, 20, 41):
            pid = one._loaders.pids[number % 2]
            assert pid not in killed
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
    assert one.stats().restarts == 3
    assert len(one._loaders.pids) == 2
    assert not killed & set(one._loaders.pids)
    assert all_gone(killed, 1)
    # There is no fourth.
    os.kill(one._loaders.pids[0], signal.SIGKILL)
    with pytest.raises(LoaderDied, match="SIGKILL"):
        list(itertools.islice(one, 64))


def test_after_a_failure_the_same_dataset_goes_on_where_it_was(dataset):
    one = dataset(batches_per_epoch=40, timeout=30)
    expected = [batch["field"] for batch in one]
    one.set_epoch(0)
    batches = iter(one)
    served = [next(batches)["field"] for _ in range(11)]
    state = one.state_dict()
    os.kill(one._loaders.pids[0], signal.SIGKILL)
    with pytest.raises(LoaderDied):
        list(batches)
    one.load_state_dict(state)
    served += [batch["field"] for batch in one]
    assert len(served) == 40
    for mine, theirs in zip(served, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_loader_that_is_stuck_runs_into_the_timeout_and_is_ended(dataset):
    one = dataset(timeout=1.5)
    batches = iter(one)
    # The start may take longer than the timeout.
    assert processes.until(lambda: one._serving.ready((0, 0)), 60)
    (pid,) = one._loaders.pids
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(LoaderTimeout, match=r"within timeout=1\.5 s") as caught:
        list(itertools.islice(batches, 100))
    assert time.monotonic() - began < 10
    assert "\n" not in str(caught.value)
    assert all_gone([pid], 2)


# -- the training process -----------------------------------------------------------------------

TRAINER = """
import json, os, signal, sys
import numpy as np, xarray as xr
import superbatch as sb
from tests import processes

field = xr.DataArray(np.arange(6000, dtype="int32").reshape(1000, 6), dims=("time", "x"))
source = sb.ArchiveSource({"field": sb.Window(field, time=5)}, samples=4096)
dataset = sb.SuperbatchDataset(source, 8, loaders=%(loaders)d, replays=1, transport=%(transport)r)
try:
    for number, batch in enumerate(dataset):
        first = batch["field"][:, :1, :1]
        assert (batch["field"].flatten(1) - first[:, 0] == np.arange(30)).all()
        if number == 20:
            found = {
                "loaders": dataset._loaders.pids,
                "children": processes.descendants(os.getpid()),
                "memory": sorted(processes.shared_memory(os.getpid())),
            }
            print(json.dumps(found), flush=True)
        if number > 20 and number %% 2000 == 0:
            print("going on", flush=True)
        %(body)s
finally:
    print("the loop has ended", flush=True)
"""


def trainer(folder, body="pass", transport="shared", loaders=1):
    """Start a training script and wait until it trains."""
    process = script(folder, TRAINER % {"transport": transport, "body": body, "loaders": loaders})
    said = lines(process, 60)
    try:
        found = json.loads(next(said))
    except StopIteration:
        process.kill()
        raise AssertionError(process.communicate()) from None
    assert len(found["loaders"]) == loaders
    assert set(found["loaders"]) == set(found["children"])  # and no helper besides them
    assert all(map(processes.alive, found["loaders"]))
    return process, found, said


def nothing_is_left(found, seconds=5.0):
    gone = all_gone(found["children"], seconds)
    assert gone, [pid for pid in found["children"] if processes.alive(pid)]
    # A process that has been killed lets go of its memory when it ends, a moment later.
    memory = set(found["memory"])
    assert processes.until(lambda: not holders(memory), seconds), holders(memory)
    assert not processes.named_segments()


@pytest.mark.parametrize("transport", ["shared", "pipe"])
def test_nothing_is_left_when_the_training_process_is_killed(tmp_path, transport):
    process, found, said = trainer(tmp_path, transport=transport, loaders=2)
    assert len(found["memory"]) == (3 if transport == "shared" else 0)
    assert set(holders(set(found["memory"]))) >= (
        set(found["loaders"]) if found["memory"] else set()
    )
    next(said)  # it is in the middle of an epoch
    process.kill()
    process.wait(5)
    nothing_is_left(found)
    process.communicate()


def test_nothing_is_left_when_the_training_process_is_interrupted(tmp_path):
    process, found, said = trainer(tmp_path, loaders=2)
    next(said)
    for pid in [process.pid, *found["loaders"]]:  # as a terminal does it: Ctrl-C goes to all
        os.kill(pid, signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=10)
    assert time.monotonic() - began < 5
    nothing_is_left(found, max(0.0, began + 5 - time.monotonic()))
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1  # that of the loop, and none of a loader


def test_ctrl_c_twice_ends_at_once(tmp_path):
    process, found, said = trainer(tmp_path, loaders=2)
    next(said)
    began = time.monotonic()
    for _ in range(2):  # the second comes while the first is being answered, or before
        for pid in [process.pid, *found["loaders"]]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
    process.communicate(timeout=10)
    assert time.monotonic() - began < 5
    nothing_is_left(found)


def test_ctrl_c_while_the_loop_waits_for_a_superbatch_ends_it(tmp_path):
    code = """
import time, os, json
import numpy as np, xarray as xr, superbatch as sb
from tests import processes
field = xr.DataArray(np.arange(6000, dtype="int32").reshape(1000, 6), dims=("time", "x"))
def slow(sample):
    time.sleep(1)
    return sample
source = sb.ArchiveSource({"field": sb.Window(field, time=5)}, samples=64, transform=slow)
dataset = sb.SuperbatchDataset(source, 8)
batches = iter(dataset)
found = {"children": dataset._loaders.pids, "memory": sorted(processes.shared_memory(os.getpid()))}
print(json.dumps(found), flush=True)
next(batches)
"""
    process = script(tmp_path, code)
    found = json.loads(next(lines(process, 60)))
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=10)
    assert time.monotonic() - began < 5
    assert err.rstrip().endswith("KeyboardInterrupt")
    nothing_is_left(found)


def test_an_error_in_the_loop_itself_ends_everything(tmp_path):
    process, found, _ = trainer(tmp_path, "assert number < 200, 'loss is nan'")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.rstrip().endswith("AssertionError: loss is nan")
    nothing_is_left(found)


def test_a_child_that_the_script_forks_neither_stops_loaders_nor_keeps_them(tmp_path):
    # The child inherits the ends of the loaders' pipes, and outlives the training process.
    body = """if number == 30:
            child = os.fork()
            if child == 0:
                signal.pause()
            other = os.fork()
            if other == 0:
                sys.exit()
            os.waitpid(other, 0)
            print(json.dumps(child), flush=True)"""
    process, found, said = trainer(tmp_path, body)
    child = next(line for line in said if line.strip().isdigit())
    try:
        assert next(said) in ("going on", "the loop has ended")  # the first is what the loop says
        assert any(line == "going on" for line in itertools.islice(said, 3))
        process.kill()
        process.wait(5)
        assert all_gone(found["loaders"], 5)
    finally:
        os.kill(int(child), signal.SIGKILL)
    nothing_is_left(found)
    process.communicate()


def test_the_same_script_twice_at_the_same_time(tmp_path):
    one, first, _ = trainer(tmp_path)
    two, second, said_two = trainer(tmp_path)
    assert not set(first["memory"]) & set(second["memory"])
    one.kill()
    one.wait(5)
    nothing_is_left(first)
    assert all(map(processes.alive, second["loaders"]))
    for _ in range(3):
        assert next(said_two) == "going on"
    two.kill()
    two.wait(5)
    nothing_is_left(second)
    for process in (one, two):
        process.communicate()


def test_two_datasets_end_together_with_their_process(tmp_path):
    before = shared_memory(os.getpid())
    code = """
import json, os
import numpy as np, xarray as xr, superbatch as sb
from tests import processes
field = xr.DataArray(np.arange(600, dtype="int32").reshape(100, 6), dims=("time", "x"))
source = sb.ArchiveSource({"field": sb.Window(field, time=5)}, samples=64)
datasets = [sb.SuperbatchDataset(source, 8, seed=seed) for seed in (0, 1)]
for one, two in zip(*datasets):
    break
found = {"children": processes.descendants(os.getpid()), "memory": sorted(processes.shared_memory(os.getpid()))}
print(json.dumps(found), flush=True)
# Neither is closed: the end of the script has to do.
"""
    process = script(tmp_path, code)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    found = json.loads(out)
    assert len(found["children"]) == 2
    assert len(found["memory"]) == 4
    nothing_is_left(found, 1)
    assert shared_memory(os.getpid()) == before


@pytest.mark.parametrize("strategy", ["file_system", "file_descriptor"])
def test_the_sharing_of_torch_does_not_matter(tmp_path, strategy):
    before = set(os.listdir("/dev/shm"))
    code = f"""
import torch.multiprocessing as tm
import numpy as np, xarray as xr, superbatch as sb
from torch.utils.data import DataLoader
tm.set_sharing_strategy({strategy!r})
field = xr.DataArray(np.arange(600, dtype="int32").reshape(100, 6), dims=("time", "x"))
source = sb.ArchiveSource({{"field": sb.Window(field, time=5)}}, samples=64)
kept = []
with sb.SuperbatchDataset(source, 8, batches_per_epoch=40) as dataset:
    for batch in DataLoader(dataset, batch_size=None, num_workers=0):
        kept.append(batch["field"].share_memory_())
print(len(kept), all((b[:, 1:, 0] - b[:, :-1, 0] == 6).all() for b in kept))
"""
    process = script(tmp_path, code)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode, err) == ("40 True\n", 0, "")
    assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_two_users_at_the_same_time(tmp_path):
    tmp_path.chmod(0o755)
    options = {
        "user": "nobody",
        "cwd": Path(__file__).parents[1],
        "env": {"PATH": os.environ["PATH"], "HOME": "/tmp"},
        "capture_output": True,
        "text": True,
        "timeout": 60,
    }
    try:
        can = subprocess.run([sys.executable, "-c", "import superbatch"], **options)
    except PermissionError as error:
        pytest.skip(f"the other user cannot run this Python: {error}")
    if can.returncode:
        pytest.skip(f"the other user cannot read this checkout: {can.stderr.splitlines()[-1]}")
    process, found, said = trainer(tmp_path)
    code = """
import numpy as np, xarray as xr, superbatch as sb
field = xr.DataArray(np.arange(600, dtype="int32").reshape(100, 6), dims=("time", "x"))
source = sb.ArchiveSource({"field": sb.Window(field, time=5)}, samples=64)
with sb.SuperbatchDataset(source, 8, batches_per_epoch=20, timeout=60) as dataset:
    print(sum((b["field"][:, 1:, 0] - b["field"][:, :-1, 0] == 6).all().item() for b in dataset))
"""
    other = subprocess.run([sys.executable, "-c", code], **options)
    assert (other.stdout, other.returncode) == ("20\n", 0), other.stderr
    assert next(said) == "going on"
    process.kill()
    process.wait(5)
    nothing_is_left(found)
    process.communicate()


def test_corners_prove_themselves():
    # The proof that these tests rest on can fail.
    good = WHOLE[3:8][None]
    assert corners(good, WHOLE).tolist() == [[3, 0]]
    for bad in (
        WHOLE[3:8][::-1][None].copy(),
        WHOLE[3:8][None] + 1,
        np.roll(WHOLE, 1, 1)[3:8][None],
    ):
        with pytest.raises((AssertionError, ValueError)):
            corners(bad, WHOLE)
