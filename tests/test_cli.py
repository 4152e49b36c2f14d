"""The command line: help, version, and errors that are one sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from superbatch.cli import COMMANDS, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("superbatch")
    return subprocess.run([script, *arguments], capture_output=True, text=True, timeout=60)


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert f"superbatch {name}" in shown.split("example", 1)[1]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
)
def test_help_imports_nothing_slow(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from superbatch.cli import main\n"
        "try:\n"
        f"    main({arguments})\n"
        "except SystemExit:\n"
        "    slow = {'torch', 'xarray', 'dask', 'zarr', 'matplotlib'} & sys.modules.keys()\n"
        "    sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"superbatch {version('superbatch')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["dmeo"], "'demo'"),
        (["demo", "--steps", "many"], "--steps"),
        (["demo", "--steps", "0"], "--steps"),
        (["demo", "--seconds", "-1"], "--seconds"),
    ],
)
def test_arguments_that_cannot_be_parsed(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert words in capsys.readouterr().err


def test_an_error_is_one_line(tmp_path: Path) -> None:
    done = run("demo", "--dir", str(tmp_path), "--store", str(tmp_path / "none.zarr"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("superbatch demo: there is no Zarr store at ")
    assert len(done.stderr.splitlines()) == 1


def test_interrupting_is_no_traceback(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("superbatch")
    process = subprocess.Popen(
        [script, "demo", "--dir", str(tmp_path), "--seconds", "60", "--steps", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("superbatch demo: ")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors == "superbatch demo: interrupted\n"
