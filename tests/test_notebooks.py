"""Notebooks run as they stand, and keep the outputs of a run."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, tmp_path: Path) -> None:
    kept = nbformat.read(path, as_version=4)
    nbformat.validate(kept)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    # a notebook whose outputs were cleared, or that was run out of order, shows nothing to a reader
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for c in code for output in c.outputs)

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=100, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    # warnings would be on stderr: a reader is not to be frightened
    assert [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"] == []
