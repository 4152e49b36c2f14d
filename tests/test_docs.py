"""The pages of docs/ do what they say: their code runs, and prints what is printed there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(p for p in (ROOT / "docs").glob("*.md") if "```python" in p.read_text("utf-8"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "-- end of block --"


def blocks(page: Path) -> list[tuple[str, str]]:
    """Each block of Python, and what the page says that it prints."""
    found: list[tuple[str, str]] = []
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            found.append((text, ""))
        else:
            assert language == "text", f"a block of {language} is not tested"
            assert found, "output without code"
            assert not found[-1][1], "output without code"
            found[-1] = (found[-1][0], text)
    return found


def test_there_are_pages() -> None:
    assert {"concepts.md", "faults.md", "reproducibility.md", "sampling.md", "tuning.md"} <= {
        page.name for page in PAGES
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    parts = blocks(page)
    assert parts
    script = tmp_path / "page.py"
    script.write_text("".join(f"{code}\nprint({END!r})\n" for code, _ in parts), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.split(f"{END}\n") == [*(said for _, said in parts), ""]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pictures_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#]+)", text) + re.findall(r"`((?:\w+/)+[\w.]+\.\w+)`", text)
    for target in named:
        if not target.startswith("http"):
            assert (page.parent / target).exists() or (ROOT / target).exists(), target


def test_pictures_can_be_drawn_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "make_pictures.py", tmp_path], check=True)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs").glob("*.png")}
    for name in drawn:
        assert (tmp_path / name).stat().st_size > 10_000
