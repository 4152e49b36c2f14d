"""The planning benchmark runs, and plans what it says."""

import subprocess
import sys

from benchmarks import plan


def test_both_lengths_are_planned() -> None:
    found = plan.measure("once", 2)
    assert list(found) == [plan.W1_CHUNKS, plan.MANY_CHUNKS]
    assert all(making > 0 and planning > 0 for making, planning, _ in found.values())
    short, long = (size for _, _, size in found.values())
    assert long < short + 100


def test_sites_with_gaps_are_planned() -> None:
    found = plan.measure_sites(2, days=4, sites=30)
    assert 0 < found["anchors"] < 4 * 288 * 30
    assert all(value > 0 for value in found.values())


def test_the_table_is_printed() -> None:
    command = [sys.executable, "-m", "benchmarks.plan", "--repeats", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == ["random"] * 2 + ["ratio"] + [
        "once"
    ] * 2 + ["ratio"]
