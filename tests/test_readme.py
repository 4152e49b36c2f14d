"""The README's commands are those that are promised, and its code runs as it is printed."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client

from superbatch.demo import add_arguments
from tests.processes import until

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCK.findall(README) if language == "python"]


def section(title: str) -> str:
    return re.split(r"^## ", README, flags=re.MULTILINE)[
        [p.splitlines()[0] for p in re.split(r"^## ", README, flags=re.MULTILINE)].index(title)
    ]


def test_the_quick_start_is_two_commands_of_one_line() -> None:
    assert [code for _, code in BLOCK.findall(section("Quick start"))] == [
        "python3 -m venv .venv && .venv/bin/pip install -e '.[demo]' && .venv/bin/superbatch demo\n",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest\n",
    ]


def test_ci_runs_the_test_command_as_it_is_printed() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    pattern = re.search(r'grep -E "([^"]+)" README.md', script)
    assert pattern is not None
    found = subprocess.run(
        ["grep", "-E", pattern[1], str(ROOT / "README.md")], capture_output=True, text=True
    )
    assert found.stdout == BLOCK.findall(section("Quick start"))[1][1]


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_code_runs_as_printed(code: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if "Forecast" in code:
        assert "'pv': torch.Size([16, 21])" in done.stdout
        assert "'site': 16" in done.stdout
        return
    if "stream.Producer" in code:
        assert "128 samples, served torch.Size([16, 32]) at a time" in done.stdout
        return
    said = re.search(r"loss ([\d.]+), (\d+) fresh and (\d+) replayed samples", done.stdout)
    assert said is not None, done.stdout
    # the wave's next hour is a linear function of those before: an untrained network is at about 0.5
    assert float(said[1]) < 0.1
    assert int(said[2]) + int(said[3]) == 100 * 32


def test_commands_of_the_demo_can_be_parsed() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    lines = [line for _, code in BLOCK.findall(README) for line in code.splitlines()]
    commands = [line for line in lines if line.startswith(".venv/bin/superbatch demo")]
    assert commands
    for line in commands:
        parser.parse_args(shlex.split(line)[2:])


def test_the_commands_of_a_cluster_start_one(tmp_path: Path) -> None:
    (code,) = [
        code for language, code in BLOCK.findall(section("On a cluster")) if language == "sh"
    ]
    bin = Path(sys.executable).parent
    shell = subprocess.Popen(
        ["bash", "-c", f"{code}wait"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        file = tmp_path / "scheduler.json"
        assert until(lambda: file.exists() and file.stat().st_size > 0, 30)
        with Client(scheduler_file=str(file), set_as_default=False, timeout=30) as client:
            client.wait_for_workers(1, timeout=30)
            assert sum(client.nthreads().values()) == 16
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
