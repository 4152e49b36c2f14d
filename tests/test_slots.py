"""Slots in real shared memory, and in one that is too small."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.errors import SuperbatchError
from superbatch.slots import SHARED_MEMORY, Layout, PrivateSlots, SharedSlots

ROOT = Path(__file__).parents[1]

dtypes = st.sampled_from(["i2", "f4", "f8", "?", "u1"]).map(np.dtype)
shapes = st.lists(st.integers(1, 5), max_size=3).map(tuple)
layouts = st.builds(
    Layout,
    st.dictionaries(st.text("abc", min_size=1), st.tuples(shapes, dtypes), min_size=1, max_size=4),
    st.integers(1, 20),
)
small = Layout({"a": ((3,), np.dtype("i4")), "b": ((), np.dtype("f8"))}, 5)


@given(layouts)
def test_no_array_of_a_slot_touches_another(layout: Layout) -> None:
    memory = np.zeros(layout.size, np.uint8)
    for number, array in enumerate(layout.arrays(memory).values(), start=1):
        array.view(np.uint8)[...] = number
    for number, (name, array) in enumerate(layout.arrays(memory).items(), start=1):
        shape, dtype = layout.fields[name]
        assert array.shape == (layout.samples, *shape)
        assert array.dtype == dtype
        assert (array.view(np.uint8) == number).all()
    used = sum(array.nbytes for array in layout.arrays(memory).values())
    assert np.count_nonzero(memory) == used


@given(layouts)
def test_arrays_begin_on_pages_of_their_own(layout: Layout) -> None:
    assert layout.size % 4096 == 0
    assert all(offset % 4096 == 0 for offset in layout.offsets.values())
    needed = [
        layout.samples * int(np.prod(shape)) * dtype.itemsize
        for shape, dtype in layout.fields.values()
    ]
    assert sum(needed) <= layout.size < sum(needed) + 4096 * len(needed)


@pytest.mark.parametrize("kind", [SharedSlots, PrivateSlots])
def test_slots_and_datasets_share_nothing(kind) -> None:
    one, other = kind(small, 3), kind(small, 3)
    for number, view in enumerate([*one.views, *other.views]):
        view["a"][...] = number
        view["b"][...] = -number
    for number, view in enumerate([*one.views, *other.views]):
        assert (view["a"] == number).all()
        assert (view["b"] == -number).all()
    one.close()
    assert (other.views[0]["a"] == 3).all()
    other.close()


def test_what_a_user_keeps_outlives_the_slots() -> None:
    slots = SharedSlots(small, 1)
    kept = slots.views[0]["a"]
    kept[...] = 7
    slots.close()
    assert (kept == 7).all()
    assert slots.descriptors() == []


def python(code: str, *command: str, fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        pass_fds=fds,
        check=False,
    )


def test_another_process_writes_into_the_same_memory() -> None:
    slots = SharedSlots(small, 2)
    code = f"""
        import numpy as np
        from superbatch.slots import Layout, open_shared
        layout = Layout({{"a": ((3,), np.dtype("i4")), "b": ((), np.dtype("f8"))}}, 5)
        views = open_shared(layout, {slots.descriptors()})
        assert (views[0]["a"] == 5).all()
        views[1]["a"][...] = np.arange(15).reshape(5, 3)
        views[1]["b"][...] = 0.5
    """
    slots.views[0]["a"][...] = 5
    done = python(code, fds=tuple(slots.descriptors()))
    assert done.returncode == 0, done.stderr
    assert slots.views[1]["a"].ravel().tolist() == list(range(15))
    assert (slots.views[1]["b"] == 0.5).all()
    slots.close()


def test_closing_gives_descriptors_back() -> None:
    # In a fresh interpreter: here, garbage of earlier tests may close its own meanwhile.
    done = python(
        PRELUDE
        + textwrap.dedent("""
            before = os.listdir("/proc/self/fd")
            for _ in range(5):
                slots = SharedSlots(layout(1), 4)
                assert len(os.listdir("/proc/self/fd")) >= len(before) + 4
                slots.close()
            assert os.listdir("/proc/self/fd") == before
        """)
    )
    assert done.returncode == 0, done.stderr


def test_memory_that_can_never_be_there_is_refused() -> None:
    huge = Layout({"a": ((2**20,), np.dtype("f8"))}, 2**22)
    with pytest.raises(
        SuperbatchError, match=r'lower samples=.*or write transport="pipe"'
    ) as caught:
        SharedSlots(huge, 3)
    assert "3 slots of 35184372 MB need 105553116 MB" in str(caught.value)


# -- a small shared memory of its own ------------------------------------------------------------


@functools.cache
def small_memory() -> tuple[str, ...]:
    """A command that runs another with 4 MB at /dev/shm, in a mount namespace of its own."""
    command = (
        "unshare",
        "-rm",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=4m tmpfs {SHARED_MEMORY} && exec "$@"',
        "sh",
    )
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no mount namespace: {error}")
    if done.returncode:
        pytest.skip(f"no mount namespace: {done.stderr.decode().strip()}")
    return command


PRELUDE = """
import os, shutil, signal, subprocess, sys, time
import numpy as np
from superbatch.errors import SuperbatchError
from superbatch.slots import Layout, SharedSlots
def layout(megabytes):
    return Layout({"a": ((2**20,), np.dtype("u1"))}, megabytes)
def used():
    return shutil.disk_usage("/dev/shm").used
"""


def in_small_memory(code: str) -> str:
    done = python(PRELUDE + textwrap.dedent(code), *small_memory())
    assert done.returncode == 0, done.stderr
    return done.stdout


# situation: /dev/shm is smaller than the slots, as in a container
def test_too_little_shared_memory_is_one_error_before_anything_is_loaded() -> None:
    message = in_small_memory("""
        try:
            SharedSlots(layout(2), 3)
        except SuperbatchError as error:
            print(error)
        assert used() == 0
    """)
    assert message.count("\n") == 1
    assert "3 slots of 2 MB need 6 MB of shared memory, but /dev/shm has 4 MB free" in message
    assert "--shm-size=1g" in message
    assert 'transport="pipe"' in message


def test_what_is_there_is_used_to_the_last_page() -> None:
    in_small_memory("""
        slots = SharedSlots(layout(2), 2)
        assert used() == 4 << 20
        for view in slots.views:
            view["a"][...] = 1  # would be killed by SIGBUS, had it not been reserved
        assert os.listdir("/dev/shm") == []  # no name that could collide
        del view
        slots.close()
        assert used() == 0
    """)


def test_memory_that_goes_to_somebody_else_meanwhile_is_the_same_error() -> None:
    # Between looking and reserving, another program takes the rest.
    message = in_small_memory("""
        import tempfile
        slots = SharedSlots(layout(1), 1)
        with open("/dev/shm/other", "wb") as other:
            os.posix_fallocate(other.fileno(), 0, 3 << 20)
            with tempfile.TemporaryFile(dir="/dev/shm") as file:
                try:
                    slots._reserve(file, "/dev/shm")
                except SuperbatchError as error:
                    print(error)
    """)
    assert "has 0 MB free" in message


def test_a_killed_process_leaves_nothing_behind() -> None:
    in_small_memory("""
        code = (
            "import sys, numpy as np; from superbatch.slots import Layout, SharedSlots;"
            "slots = SharedSlots(Layout({'a': ((2**20,), np.dtype('u1'))}, 1), 3);"
            "print('ready', flush=True); sys.stdin.read()"
        )
        pipe = subprocess.PIPE
        child = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe)
        assert child.stdout.readline() == b"ready\\n"
        assert used() == 3 << 20
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        assert used() == 0
    """)


def test_slots_that_fail_half_way_are_given_back() -> None:
    in_small_memory("""
        import resource
        soft = len(os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
        try:
            SharedSlots(layout(1), 4)
        except OSError as error:
            print(error)
        else:
            raise AssertionError("there were descriptors enough")
        import gc
        gc.collect()
        assert used() == 0
    """)


def test_names_of_fields_may_be_anything() -> None:
    for name, other in itertools.pairwise(["sat", "a b", "é", "", "x" * 300]):
        layout = Layout({name: ((2,), np.dtype("f4")), other: ((1,), np.dtype("i8"))}, 2)
        slots = SharedSlots(layout, 1)
        assert set(slots.views[0]) == {name, other}
        slots.close()
