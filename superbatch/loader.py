"""A loader: a process of its own that makes superbatches and hands over tokens.

It is started as a fresh interpreter, never forked, and it does not import the script that started it:
so a script needs no ``if __name__ == "__main__"``, and what the script imports (torch) is not imported
again. Functions that the script defines travel by value.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import cloudpickle

from superbatch.failure import Failure
from superbatch.lock import FileLock
from superbatch.source import Feed, Filled, Filler, Filling
from superbatch.transport import Sender

# Loaders keep all cores busy. At equal priority a loop that wakes up for its next batch waits for a core, 10 ms
# for one batch in ten on two cores; at 5 less, 0.07 ms (benchmarks/NOTES.md).
NICE = 5
# How long a loader may take to end on its own once it was asked to.
_GRACE = 0.3


@dataclass(frozen=True)
class Job:
    """A superbatch to be made, and the slot to make it in.

    The serial number tells it from an earlier job for the same superbatch and slot: a job that is
    cancelled too late to be dropped must not cancel the one that asks for the same again.
    """

    epoch: int
    index: int
    slot: int
    serial: int


@dataclass(frozen=True)
class Setup:
    """What a loader is told at its start."""

    number: int
    parent: int
    feed: Feed
    sender: Sender


@dataclass(frozen=True)
class Token:
    """What is handed over when a superbatch is in its slot."""

    loader: int
    job: Job
    filled: Filled


def main(connection_fd: int, token_fd: int, lock_fd: int) -> None:
    """Run a loader until the training process closes the connection, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training process decides what Ctrl-C stops
    os.nice(NICE)
    connection = Connection(connection_fd)
    tokens, lock = Connection(token_fd, readable=False), FileLock(lock_fd)
    try:
        packed = connection.recv_bytes()
    except EOFError:
        return
    try:
        setup: Setup = cloudpickle.loads(packed)
    except Exception as error:
        error.add_note("while a loader unpacked the source, its transform and its arrays")
        connection.send(("failure", None, Failure.of(error)))
        return
    speaking = threading.Lock()  # one message at a time: samples may be on their way through a pipe
    jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    cancelled: set[Job] = set()
    threading.Thread(target=_receive, args=(connection, jobs, cancelled), daemon=True).start()
    job: Job | None = None
    try:
        filler = setup.feed.open()
        threading.Thread(
            target=_watch, args=(setup.parent, filler, connection, speaking), daemon=True
        ).start()
        gc.freeze()  # what has been imported stays: collections need not look at it again
        for job, filling, idle in _started(jobs, cancelled, filler, setup.sender):
            if filling is None:
                with speaking:
                    connection.send(("dropped", job))
                continue
            filled = filling.finish()
            filled.loader, filled.superbatch, filled.idle_seconds = setup.number, job.index, idle
            if setup.sender.announces:
                with speaking:
                    connection.send(("data", job, filled.samples))
                    setup.sender.send(connection, job.slot, filled.samples)
            token = pickle.dumps(Token(setup.number, job, filled))
            with lock:
                tokens.send_bytes(token)
        filler.close()
    except BaseException as error:
        with contextlib.suppress(OSError), speaking:
            connection.send(("failure", job, Failure.of(error)))
    finally:
        # Threads of Dask and of the stores may be busy for long; nothing here needs their end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _started(
    jobs: queue.SimpleQueue[Job | None], cancelled: set[Job], filler: Filler, sender: Sender
) -> Iterator[tuple[Job, Filling | None, float]]:
    """Jobs in order, each with its filling, or None where it was cancelled; and seconds waited for it.

    The next job is started while one is being finished, so that no thread idles at the end of
    a superbatch, unless all share one slot.
    """
    views = sender.open()
    ahead = threading.Semaphore(1 if sender.announces else 2)
    started: queue.SimpleQueue[tuple[Job, Filling | None, float] | BaseException | None]
    started = queue.SimpleQueue()

    def start() -> None:
        try:
            while True:
                ahead.acquire()
                began = time.monotonic()
                job = jobs.get()
                idle = time.monotonic() - began
                if job is None:
                    break
                if job in cancelled:
                    cancelled.discard(job)
                    started.put((job, None, idle))
                else:
                    filling = filler.start(job.epoch, job.index, views[job.slot])
                    started.put((job, filling, idle))
            started.put(None)
        except BaseException as error:
            started.put(error)

    threading.Thread(target=start, daemon=True).start()

    def following() -> tuple[Job, Filling | None, float] | BaseException | None:
        while True:
            again = filler.idle() if started.empty() else None
            try:
                return started.get(timeout=again)
            except queue.Empty:
                continue

    while (item := following()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item
        ahead.release()


def _receive(
    connection: Connection, jobs: queue.SimpleQueue[Job | None], cancelled: set[Job]
) -> None:
    """Take orders; when the training process is gone, so is the loader."""
    while True:
        try:
            kind, job = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        if kind == "job":
            jobs.put(job)
        elif kind == "cancel":
            cancelled.add(job)
        elif kind == "close":
            jobs.put(None)
            # The main thread may be in the middle of a superbatch, or of sending one.
            time.sleep(_GRACE)
            os._exit(0)


def _watch(parent: int, filler: Filler, connection: Connection, speaking: threading.Lock) -> None:
    """End with the training process even where somebody else inherited its end of the connection;

    and say so where something hangs: nobody else can.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
        stuck = filler.stuck()
        # Where samples are being sent, the training process gets on with what it has.
        if stuck is not None and speaking.acquire(timeout=_GRACE):
            with contextlib.suppress(OSError):
                connection.send(("failure", None, Failure.of(stuck)))
            break
    os._exit(0)
