"""The two halves of a transport; what both have to do alike is in contract/."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Pipe

import numpy as np
import pytest

from superbatch.errors import ArgumentError
from superbatch.lock import FileLock
from superbatch.slots import Layout
from superbatch.supervise import Loaders
from superbatch.transport import TRANSPORTS, make
from tests.processes import ROOT, until

FIELDS = {
    "field": ((3, 5), np.dtype("i2")),
    "scalar": ((), np.dtype("f8")),
    "mask": ((7,), np.dtype("?")),
    "nothing": ((0, 4), np.dtype("f4")),
}


class Numbers:
    """A feed whose samples are their epoch, superbatch and row; as fast as a loader can be."""

    def __init__(self):
        self.fields = {"field": ((3,), np.dtype("i8"))}
        self.samples = 16

    def descriptors(self):
        return []

    def open(self):
        return self

    def start(self, epoch, index, slot):
        from superbatch.source import Filled

        class Filling:
            def finish(self):
                slot["field"][:, 0], slot["field"][:, 1] = epoch, index
                slot["field"][:, 2] = np.arange(16)
                return Filled(16)

        return Filling()

    def idle(self):
        return None

    def stuck(self):
        return None

    def close(self):
        pass


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_token_never_comes_before_its_samples(name):
    # Superbatches so small that a loader has sent samples and token before anybody looks.
    from superbatch.loader import Job

    feed = Numbers()
    receiver = make(name, Layout(feed.fields, 16), 4)
    loaders = Loaders(feed, receiver, 2)
    try:
        waiting, done, deadline = {}, 0, time.monotonic() + 60
        free, number = [0, 1, 2, 3], 0
        while done < 3000:
            assert time.monotonic() < deadline
            while free:
                job = Job(number // 100, number % 100, free.pop(), number)
                waiting[number] = job
                loaders.submit(job)
                number += 1
            for job, token in loaders.poll(1.0):
                assert token.filled.samples == 16
                view = receiver.views[job.slot]["field"]
                expected = np.stack(
                    [np.full(16, job.epoch), np.full(16, job.index), np.arange(16)], 1
                )
                np.testing.assert_array_equal(view, expected)
                view[...] = -1
                del waiting[job.serial]
                free.append(job.slot)
                done += 1
    finally:
        loaders.close()
        receiver.close()


@pytest.mark.parametrize("name", TRANSPORTS)
def test_every_kind_of_array_has_its_place(name):
    receiver = make(name, Layout(FIELDS, 10), 3)
    try:
        assert len(receiver.views) == 3
        for number, view in enumerate(receiver.views):
            for field, (shape, dtype) in FIELDS.items():
                assert view[field].shape == (10, *shape)
                assert view[field].dtype == dtype
                view[field][...] = number % 2
        for number, view in enumerate(receiver.views):  # none lies over another
            assert all((array == number % 2).all() for array in view.values())
    finally:
        receiver.close()


def test_an_unknown_transport_is_refused():
    with pytest.raises(ArgumentError, match="'shared', 'pipe'"):
        make("pigeon", Layout(FIELDS, 1), 1)


def test_a_lock_is_open_again_when_its_holder_is_killed(tmp_path):
    code = "import sys, time; from superbatch.lock import FileLock\n"
    code += "with open(sys.argv[1], 'r+b') as file, FileLock(file.fileno()):\n"
    code += "    print('held', flush=True); time.sleep(60)"
    path = tmp_path / "lock"
    path.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert holder.stdout.readline() == "held\n"
        waiter = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            import fcntl

            with open(path, "r+b") as file:
                with pytest.raises(OSError, match="unavailable"):
                    fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                holder.send_signal(signal.SIGKILL)
                assert waiter.stdout.readline() == "held\n"
            waiter.kill()
            waiter.wait(5)
            with open(path, "r+b") as file, FileLock(file.fileno()):
                pass
        finally:
            waiter.kill()
            waiter.wait(5)
    finally:
        holder.kill()
        holder.wait(5)
    assert until(lambda: holder.poll() is not None, 1)


def test_a_loader_never_speaks_while_samples_are_on_their_way():
    # A read that hangs is reported by another thread than the one that sends samples.
    code = """
import os, sys, threading
from multiprocessing.connection import Connection
from superbatch.loader import _watch
class Filler:
    def stuck(self):
        return RuntimeError("a read hangs")
speaking = threading.Lock()
speaking.acquire()
connection = Connection(int(sys.argv[1]), readable=False)
threading.Thread(target=_watch, args=(os.getppid(), Filler(), connection, speaking), daemon=True).start()
sys.stdin.read()
speaking.release()
threading.Event().wait(20)
"""
    ours, theirs = Pipe(duplex=False)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(theirs.fileno())],
        stdin=subprocess.PIPE,
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    theirs.close()
    try:
        assert not ours.poll(3.0)  # it would have spoken after half a second
        process.stdin.close()
        assert ours.poll(20.0)
        assert str(ours.recv()[2].error()) == "a read hangs"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(20)
