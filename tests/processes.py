"""Other processes in tests: scripts that are run, and what they must not leave behind."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def script(
    folder: Path, code: str, name: str = "script.py", *prefix: str, **options: object
) -> subprocess.Popen[str]:
    """Start a Python script of its own, as a user would; ``prefix`` goes before the command."""
    path = folder / name
    path.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*prefix, sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=environment,
        **options,  # type: ignore[call-overload]
    )


def run_script(
    folder: Path, code: str, *prefix: str, timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    process = script(folder, code, "script.py", *prefix)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(
            f"the script did not end within {timeout} s; it wrote:\n{out}\n{err}"
        ) from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def lines(process: subprocess.Popen[str], timeout: float) -> Iterator[str]:
    """What a script prints, line by line; fails where the next line takes too long."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        deadline = time.monotonic() + timeout
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"the script printed no line for {timeout} s")
            data = os.read(descriptor, 65536)
            if not data:
                return
            *complete, pending = (pending + data).split(b"\n")
            for line in complete:
                yield line.decode()
                deadline = time.monotonic() + timeout


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether something comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return condition()
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def all_gone(pids: Iterable[int], seconds: float = 5.0) -> bool:
    """Whether processes end in time."""
    pids = list(pids)
    return until(lambda: not any(map(alive, pids)), seconds)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, line = [], [pid]
    while line:
        for child in children.get(line.pop(), []):
            found.append(child)
            line.append(child)
    return found


def shared_memory(pid: int) -> set[int]:
    """Inodes of the files in /dev/shm that a process has mapped or open."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            parts = line.split(None, 5)
            if len(parts) == 6 and parts[5].startswith("/dev/shm/"):
                found.add(int(parts[4]))
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith("/dev/shm/"):
                    found.add(entry.stat().st_ino)
    return found


def holders(inodes: set[int]) -> list[int]:
    """Processes that still hold some of these files in shared memory."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if shared_memory(pid) & inodes]


def named_segments() -> list[str]:
    """Files of ours in /dev/shm that have a name, and so would outlive us."""
    return [name for name in os.listdir("/dev/shm") if "superbatch" in name]


def listening(pid: int) -> list[str]:
    """Network addresses that a process listens at."""
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry.path))
            if match:
                inodes.add(match[1])
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                parts = line.split()
                if parts[3] == "0A" and parts[9] in inodes:  # 0A: LISTEN
                    found.append(parts[1])
    return found
