"""Turns: who waits is frozen, who fails says why, nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from benchmarks.contest import Clock, Contestant, ContestantError


class Counter:
    """Counts in a thread, in and out of turns."""

    def __init__(self) -> None:
        self.count = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.count += 1
            time.sleep(0.001)

    def turn(self, what: str, **settings: Any) -> Any:
        if what == "fail":
            raise LookupError("no such chunk")
        if what == "die":
            print("out of luck", flush=True)
            os._exit(7)
        if what == "hang":
            threading.Event().wait()
        return self.count

    def close(self) -> None: ...


def _state(pid: int) -> str:
    """The kernel's word for what a process does, once it has settled."""
    deadline = time.monotonic() + 10
    while (state := psutil.Process(pid).status()) != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return state


def test_between_turns_a_contestant_is_frozen() -> None:
    contestant = Contestant("counter", Counter, timeout=30)
    try:
        before = contestant.turn("count")
        assert _state(contestant.pid) == psutil.STATUS_STOPPED
        used = psutil.Process(contestant.pid).cpu_times()
        time.sleep(0.3)
        assert psutil.Process(contestant.pid).cpu_times() == used
        assert contestant.turn("count") - before < 200
    finally:
        contestant.close()
    assert not psutil.pid_exists(contestant.pid)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fail", "LookupError: no such chunk"),
        ("die", "exit code 7: out of luck"),
        ("hang", "took longer than 1 s"),
    ],
)
def test_whoever_fails_says_why(what: str, said: str) -> None:
    contestant = Contestant("counter", Counter, timeout=30)
    contestant.timeout = 1
    with pytest.raises(ContestantError, match=said):
        contestant.turn(what)
    assert not psutil.pid_exists(contestant.pid)


_RUNNER = """
import sys, time
from benchmarks.contest import Contestant
from tests.benchmarks.test_contest import Counter

if __name__ == "__main__":
    contestant = Contestant("counter", Counter)
    print(contestant.pid, flush=True)
    time.sleep(600)
"""


def test_a_killed_runner_leaves_nothing_frozen(tmp_path: Any) -> None:
    script = tmp_path / "runner.py"
    script.write_text(_RUNNER)
    runner = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert runner.stdout is not None
    pid = int(runner.stdout.readline())
    assert _state(pid) == psutil.STATUS_STOPPED
    runner.send_signal(signal.SIGKILL)
    runner.wait(10)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the frozen contestant is still there"
        time.sleep(0.05)


def _bursts(log: list[float]) -> Iterator[int]:
    """Ten batches at once, then a wait."""
    number = 0
    while True:
        if number % 10 == 0:
            time.sleep(0.02)
        log.append(time.perf_counter())
        yield number
        number += 1


def test_the_clock_counts_whole_bursts() -> None:
    log: list[float] = []
    clock = Clock(_bursts(log), batch_size=4, ahead=3, cycle=10)
    taken = clock.run(0.05, time.process_time)
    assert taken["samples"] % 40 == 0
    assert len(log) == 10 + taken["samples"] // 4, "a burst is taken before the clock starts"
    assert taken["seconds"] >= 0.05
    again = clock.run(0.05, time.process_time)
    assert len(log) == 10 + (taken["samples"] + again["samples"]) // 4
