"""What is installed is whole."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[1]


def test_every_folder_of_modules_is_a_package() -> None:
    # A folder without __init__.py can be imported from a checkout, but is left out of a wheel.
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "superbatch").rglob("*.py")}
    found = set(find_packages(str(ROOT), include=["superbatch*"]))
    assert {".".join(folder.parts) for folder in folders} == found


def test_pictures_leave_the_plots_of_a_session_alone() -> None:
    """A notebook shows its own figures inline: who sets another backend, or opens figures, spoils that."""
    for path in (ROOT / "superbatch").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "pyplot" not in text, path
        assert "matplotlib.use" not in text, path
