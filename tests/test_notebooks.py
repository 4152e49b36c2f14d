"""Every notebook runs from top to bottom, at its small size, and is kept as a full run left it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 120.0  # for a cell; at the small size a notebook takes less than 60 in all


def test_there_are_notebooks() -> None:
    assert {"quickstart.ipynb", "replay_and_shuffle.ipynb"} <= {path.name for path in NOTEBOOKS}


@pytest.mark.timeout(2.5 * SECONDS)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERBATCH_NOTEBOOK_SIZE", "small")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what it writes goes with this test
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    copy = Path(shutil.copy(path, tmp_path))
    notebook = nbformat.read(copy, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()  # raises what a cell raises
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output["text"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_one_whole_run(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert all(output.output_type != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_says_nothing_of_the_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            text = json.dumps({k: v for k, v in output.items() if k != "metadata"})
            text = re.sub(r'"image/png": "[^"]*"', "", text)
            assert not re.search(r"/(home|tmp|root|work|usr|Users)/", text), text
            assert socket.gethostname() not in text, text
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}
