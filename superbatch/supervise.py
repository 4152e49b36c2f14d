"""The training process's side of its loaders: starts them, watches them, ends them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any

from superbatch.errors import LoaderDied
from superbatch.failure import Failure
from superbatch.loader import Job, Setup, Token
from superbatch.memory import oom_kills
from superbatch.pickling import dumps
from superbatch.source import Feed
from superbatch.transport import Receiver

# sys.path is set before anything of superbatch is imported: it may be importable through it alone.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from superbatch.loader import main; main(*map(int, sys.argv[2:]))"
)
# How long a loader may take to end after it was asked to, before it is killed.
_GRACE = 1.0
# Of the pipe for tokens: the most that Linux grants to anyone (pipe(7), pipe-max-size).
_TOKENS_BYTES = 1 << 20


class _Loader:
    """One loader process and the jobs that it has been given, in order."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.jobs: list[Job] = []
        self.received: set[Job] = set()  # whose samples have come through the connection


class Loaders:
    """A set of loader processes.

    Parameters
    ----------
    feed : Feed
    receiver : Receiver
        The slots.
    count : int
    restarts : int
        How many loaders that died are replaced, over the life of the set.
    """

    def __init__(self, feed: Feed, receiver: Receiver, count: int, restarts: int = 0) -> None:
        self._feed, self._receiver = feed, receiver
        self.restarts_left, self.restarted = restarts, 0
        self._announces = receiver.sender().announces
        self._owner = os.getpid()
        self._loaders: dict[int, _Loader] = {}
        self._tokens, self._tokens_write = Pipe(duplex=False)
        # A stream's token says what a reservoir holds: a loader is not to wait until it is read.
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self._tokens_write.fileno(), fcntl.F_SETPIPE_SZ, _TOKENS_BYTES)
        self._lock: IO[bytes] = tempfile.TemporaryFile(prefix="superbatch-lock-")  # noqa: SIM115
        self._oom_before = oom_kills()
        self._finalizer = weakref.finalize(
            self, _end, self._owner, self._loaders, [self._tokens, self._tokens_write], self._lock
        )
        # All are started before the first is set up: they take their time to import at once.
        for number in range(count):
            self._spawn(number)
        for number in range(count):
            self._set_up(number)

    @property
    def pids(self) -> list[int]:
        """Process ids of the loaders."""
        return [loader.process.pid for loader in self._loaders.values()]

    @property
    def waiting(self) -> int:
        """Jobs that have been given out and not come back."""
        return sum(len(loader.jobs) for loader in self._loaders.values())

    def submit(self, job: Job) -> None:
        """Give a job to the loader with the fewest."""
        self._give(min(self._loaders, key=lambda n: (len(self._loaders[n].jobs), n)), job)

    def cancel(self, job: Job) -> None:
        """Ask for a job not to be made. It comes back all the same, made or dropped."""
        for loader in self._loaders.values():
            if job in loader.jobs:
                with contextlib.suppress(OSError):  # that it has died is noticed by poll
                    loader.connection.send(("cancel", job))

    def poll(self, timeout: float = 0.0) -> list[tuple[Job, Token | None]]:
        """What has come back: jobs with their tokens, or None where they were dropped.

        Raises
        ------
        Exception
            What a loader failed with, as it was.
        LoaderDied
            A loader ended without a word, and no restart was left.
        """
        by_connection = {loader.connection: n for n, loader in self._loaders.items()}
        done: list[tuple[Job, Token | None]] = []
        ready = wait([self._tokens, *by_connection], timeout)
        self._take_tokens(done)
        for connection in ready:
            number = by_connection.get(connection)  # type: ignore[call-overload]
            loader = None if number is None else self._loaders.get(number)
            # What was there may have been heard since, with a token.
            if loader is not None and loader.connection is connection and connection.poll(0):
                self._hear(number, done)
        return done

    def close(self) -> None:
        """End all loaders and wait until they are gone."""
        self._finalizer()

    def _take_tokens(self, done: list[tuple[Job, Token | None]]) -> None:
        while self._tokens.poll(0):
            token: Token = pickle.loads(self._tokens.recv_bytes())
            loader = self._loaders.get(token.loader)
            if loader is None or token.job not in loader.jobs:
                continue
            # The samples were sent before the token, but may be read after it.
            while self._announces and token.job not in loader.received:
                self._hear(token.loader, done)
            loader.received.discard(token.job)
            loader.jobs.remove(token.job)
            if token.filled.state is not None:  # for a loader that replaces this one
                self._feed.resume(token.job.index, token.filled.state)
            done.append((token.job, token))

    def _hear(self, number: int, done: list[tuple[Job, Token | None]]) -> None:
        loader = self._loaders[number]
        failure: Failure | None = None
        try:
            kind, *rest = loader.connection.recv()
            if kind == "data":
                job, samples = rest
                self._receiver.receive(loader.connection, job.slot, samples)
                loader.received.add(job)
            elif kind == "dropped":
                loader.jobs.remove(rest[0])
                done.append((rest[0], None))
            elif kind == "failure":
                failure = rest[1]
        except (EOFError, ConnectionResetError):
            # What it handed over before it died counts, and is not made again.
            self._take_tokens(done)
            self._died(number)
        if failure is not None:  # which may be an EOFError itself, of a chunk that was cut short
            self.close()
            raise failure.error()

    def _died(self, number: int) -> None:
        loader = self._loaders.pop(number)
        loader.connection.close()
        code = _reap(loader.process)
        if self.restarts_left > 0:
            self.restarts_left -= 1
            self.restarted += 1
            self._spawn(number)
            self._set_up(number)
            for job in loader.jobs:
                self._give(number, job)
            return
        making = f" while it made superbatch {loader.jobs[0].index}" if loader.jobs else ""
        reason = self._reason(code)
        self.close()
        raise LoaderDied(
            f"loader {number} (process {loader.process.pid}) {reason}{making}: all loaders were stopped; "
            f"restarts=1 or more would replace it"
        )

    def _reason(self, code: int | None) -> str:
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        text = f"was killed by signal {-code} ({name})"
        if -code == signal.SIGKILL and oom_kills() > self._oom_before:
            text += ", by the kernel because memory ran out"
        return text

    def _give(self, number: int, job: Job) -> None:
        loader = self._loaders[number]
        loader.jobs.append(job)
        # Where it has died, poll finds out, and says so or gives the job to its replacement.
        with contextlib.suppress(OSError):
            loader.connection.send(("job", job))

    def _spawn(self, number: int) -> None:
        ours, theirs = Pipe(duplex=True)
        shared = [*self._receiver.descriptors(), *self._feed.descriptors()]
        descriptors = (theirs.fileno(), self._tokens_write.fileno(), self._lock.fileno())
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, descriptors)],
            stdin=subprocess.DEVNULL,
            pass_fds=(*descriptors, *shared),
        )
        theirs.close()
        self._loaders[number] = _Loader(process, ours)

    def _set_up(self, number: int) -> None:
        setup = Setup(number, os.getpid(), self._feed, self._receiver.sender())
        with contextlib.suppress(OSError):  # as above
            self._loaders[number].connection.send_bytes(dumps(setup))


def _reap(process: subprocess.Popen[Any], patience: float = _GRACE) -> int | None:
    """The exit code of a process that has ended, or is made to."""
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(5.0)


def _end(owner: int, loaders: dict[int, _Loader], pipes: list[Connection], lock: IO[bytes]) -> None:
    """End processes. Does nothing in a process that was forked from the owner."""
    if os.getpid() != owner:
        return
    for loader in loaders.values():
        with contextlib.suppress(OSError):
            loader.connection.send(("close", None))
    deadline = time.monotonic() + _GRACE
    for loader in loaders.values():
        _wait(loader.process, deadline - time.monotonic())
    for loader in loaders.values():
        if loader.process.poll() is None:
            loader.process.kill()
            _wait(loader.process, 5.0)
        loader.connection.close()
    loaders.clear()
    for pipe in pipes:
        pipe.close()
    lock.close()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, seconds))
