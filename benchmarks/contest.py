"""Loaders in turns: each in a process of its own, frozen while it is not its turn.

A machine's speed drifts, so loaders are not measured one after the other but in short turns,
again and again. Between turns a loader's whole process group is stopped by signal: it takes no
CPU from the others, and goes on exactly where it was. Linux only, as is the measurement of
memory.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol


class Entrant(Protocol):
    """What takes part: made in its own process, asked for turns, closed at the end."""

    def turn(self, what: str, **settings: Any) -> Any: ...

    def close(self) -> None: ...


class ContestantError(Exception):
    """A loader failed, or took too long; the text is the reason."""


def _serve(pipe: Connection, log: str, make: Callable[..., Entrant], args: tuple[Any, ...]) -> None:
    """Run in the loader's process: make the entrant, take turns until told to stop.

    What it and its workers print goes into the file ``log``.

    The process leads a group of its own. When the runner dies, the kernel finds an orphaned group
    with stopped members in it, continues and hangs it up: nothing frozen is left behind.
    """
    os.setpgid(0, 0)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    entrant: Entrant | None = None
    try:
        entrant = make(*args)
        pipe.send(("ready", None))
        while True:
            request = pipe.recv()
            if request is None:
                return
            what, settings = request
            pipe.send(("done", entrant.turn(what, **settings)))
    except EOFError:
        return
    except BaseException as error:
        pipe.send(("failed", (f"{type(error).__name__}: {error}", traceback.format_exc())))
    finally:
        if entrant is not None:
            entrant.close()


class Contestant:
    """One loader, in a process group of its own.

    Parameters
    ----------
    name : str
        What errors call it.
    make : callable
        Module-level; called with ``args`` in the new process, gives an `Entrant`.
    timeout : float
        Seconds that making it, and each turn, may take.
    """

    def __init__(
        self, name: str, make: Callable[..., Entrant], *args: Any, timeout: float = 180.0
    ) -> None:
        self.name = name
        self.timeout = timeout
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with tempfile.NamedTemporaryFile(prefix="benchmark-", suffix=".log", delete=False) as log:
            self._log = Path(log.name)
        self._process = context.Process(
            target=_serve, args=(theirs, log.name, make, args), name=name
        )
        self._process.start()
        theirs.close()
        self._receive()
        self._freeze()

    def turn(self, what: str, **settings: Any) -> Any:
        """Let it run for one turn and return what it measured."""
        self._thaw()
        self._pipe.send((what, settings))
        try:
            return self._receive()
        finally:
            self._freeze()

    def close(self) -> None:
        """End the process and all that it started."""
        self._thaw()
        with contextlib.suppress(OSError):
            self._pipe.send(None)
            self._process.join(20)
        self._kill()

    def _receive(self) -> Any:
        if not self._pipe.poll(self.timeout):
            self._kill()
            raise ContestantError(f"took longer than {self.timeout:.0f} s")
        try:
            kind, value = self._pipe.recv()
        except EOFError:
            self._process.join(5)
            code, printed = self._process.exitcode, self._printed()
            self._kill()
            raise ContestantError(f"its process ended with exit code {code}: {printed}") from None
        if kind == "failed":
            reason, details = value
            self._kill()
            raise ContestantError(reason) from RuntimeError(details)
        return value

    def _signal(self, number: int) -> None:
        if self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.killpg(self._process.pid, number)

    def _freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def _thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.join(5)
        self._pipe.close()
        self._log.unlink(missing_ok=True)

    def _printed(self) -> str:
        """The last line that the loader's processes printed."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing was printed"

    @property
    def pid(self) -> int:
        """Of the loader's process, the root of its tree."""
        assert self._process.pid is not None
        return self._process.pid


class Clock:
    """Times a stream of batches in its steady state.

    Parameters
    ----------
    batches : iterator
        Endless.
    ahead : int
        Batches that may be ready before anyone asks; they are taken before the clock starts.
    cycle : int
        For a loader that works in bursts: batches from one burst to the same place in the next.
        Only whole cycles are timed.
    """

    def __init__(self, batches: Any, batch_size: int, ahead: int, cycle: int = 1) -> None:
        self.batches, self.batch_size, self.cycle = batches, batch_size, cycle
        self.ahead = -(-ahead // cycle) * cycle

    def run(self, seconds: float, count_cpu: Callable[[], float]) -> dict[str, float]:
        """Take batches for at least this long; samples, wall seconds, CPU seconds."""
        for _ in range(self.ahead):
            next(self.batches)
        self.ahead = 0  # a frozen loader fetches nothing: later turns go on in the steady state
        taken = 0
        cpu, start = count_cpu(), time.perf_counter()
        while time.perf_counter() - start < seconds or taken % self.cycle or not taken:
            next(self.batches)
            taken += 1
        elapsed = time.perf_counter() - start
        return {
            "samples": taken * self.batch_size,
            "seconds": elapsed,
            "cpu_seconds": count_cpu() - cpu,
        }
