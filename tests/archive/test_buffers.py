"""Memory that is used again, and never while somebody holds it."""

from __future__ import annotations

import gc
import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superbatch.archive.buffers import Buffers


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@given(
    st.lists(st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from(["i2", "f8", "?", "M8[ns]"]),
)
def test_an_array_is_what_was_asked_for(shape, dtype) -> None:
    array = Buffers().empty(shape, dtype)
    assert array.shape == shape
    assert array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable


def test_memory_is_used_again_once_its_array_is_gone() -> None:
    buffers = Buffers()
    array = buffers.empty((1 << 20,), np.uint8)
    first = address(array)
    assert address(buffers.empty((1 << 20,), np.uint8)) != first
    del array
    gc.collect()
    addresses = {address(a) for a in [buffers.empty((1 << 20,), np.uint8) for _ in range(2)]}
    assert first in addresses


def test_another_shape_and_type_can_use_it_if_it_is_about_as_large() -> None:
    buffers = Buffers()
    array = buffers.empty((4, 1 << 20), np.uint8)
    first = address(array)
    del array
    small = buffers.empty((10,), np.uint8)  # would waste almost all of it
    assert address(small) != first
    assert address(buffers.empty((3, 1 << 18), np.float32)) == first


def test_no_more_is_kept_idle_than_was_said() -> None:
    buffers = Buffers(most_idle=2)
    held = [buffers.empty((1 << 20,), np.uint8) for _ in range(5)]
    before = {address(a) for a in held}
    del held
    gc.collect()
    after = [buffers.empty((1 << 20,), np.uint8) for _ in range(5)]
    # The system may hand out the same addresses again, so count what the pool itself kept.
    assert len(before) == len(after) == 5
    assert len(buffers._idle) == 0
    del after
    gc.collect()
    assert len(buffers._idle) == 2


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=30))
def test_arrays_that_are_held_never_share_memory(steps) -> None:
    buffers = Buffers(most_idle=3)
    held: list[tuple[int, np.ndarray]] = []
    for number, (keep, megabytes) in enumerate(steps):
        array = buffers.empty((megabytes << 20,), np.uint8)
        array[::4096] = number % 251
        if keep:
            held.append((number, array))
        elif held:
            held.pop(0)
        del array
    for number, array in held:
        assert (array[::4096] == number % 251).all()


def test_threads_do_not_get_the_same_memory() -> None:
    buffers, wrong = Buffers(), []

    def work(mark: int) -> None:
        for _ in range(100):
            array = buffers.empty((300_000,), np.uint8)
            array[:] = mark
            if not (array == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
