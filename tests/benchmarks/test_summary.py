"""Figures from repeats, checked on numbers that can be followed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, summary


def _turns(rates: list[float], cpu: float = 1.0, decoded: float = 0.0) -> list[dict[str, float]]:
    return [
        {
            "samples": rate,
            "seconds": 1.0,
            "cpu_seconds": cpu,
            "decoded_bytes": decoded * rate,
            "others": 0.0,
        }
        for rate in rates
    ]


@pytest.fixture
def result() -> dict[str, Any]:
    return {
        "name": "w4",
        "title": "a title",
        "note": "",
        "arrays": [
            {
                "name": "a",
                "shape": [4],
                "chunks": [2],
                "shards": None,
                "dtype": "int16",
                "window": [1],
            }
        ],
        "batch_size": 8,
        "samples": 10,
        "sequences": 2,
        "sample_bytes": 100,
        "superbatch_decoded_bytes": 1000,
        "floor": _turns([1000, 2000, 1000]),
        "superbatch": _turns([800, 800, 800], decoded=100),
        "turnover": [],
        "peers": {
            "slow": {"name": "slow", "access": "random", "repeats": _turns([10, 20, 40])},
            "fast": {"name": "fast", "access": "blocks", "repeats": _turns([100, 100, 400])},
            "memory": {"name": "memory", "access": "memory", "repeats": _turns([9e3] * 3)},
            "absent": {"name": "absent", "reason": "not installed", "repeats": []},
        },
    }


def _run(result: dict[str, Any], quick: bool = False) -> dict[str, Any]:
    return {
        "quick": quick,
        "machine": {
            "cpu": "a processor",
            "cores_used": 2,
            "cores": 2,
            "memory_gigabytes": 8,
            "system": "Linux",
            "python": "3.11",
        },
        "versions": {"superbatch": "0"},
        "settings": {"repeat": 3},
        "workloads": [result],
    }


def test_ratios_are_of_the_same_round(result: dict[str, Any]) -> None:
    rows = {row["loader"]: row for row in summary.table(result)}
    assert rows["slow"]["superbatch_is"] == 40  # the median of 80, 40 and 20
    assert rows["superbatch"]["of_floor"] == 0.8  # of 0.8, 0.4 and 0.8
    assert rows["slow"]["samples_per_second"] == 20
    assert list(rows)[-1] == "absent"


def test_the_best_peer_is_no_ceiling(result: dict[str, Any]) -> None:
    assert summary.best_peer(result)["loader"] == "fast"
    assert summary.best_peer(result, "random")["loader"] == "slow"


def test_a_peer_is_as_diverse_as_the_bytes_it_decodes(result: dict[str, Any]) -> None:
    assert summary.best_peer(result, "diverse")["loader"] == "slow"
    result["peers"]["fast"]["decoded_bytes_per_sample"] = 50.0  # superbatch decodes 100
    assert summary.best_peer(result, "diverse")["loader"] == "slow"
    result["peers"]["fast"]["decoded_bytes_per_sample"] = 90.0
    assert summary.best_peer(result, "diverse")["loader"] == "fast"


def test_decoding_less_counts_for_less(result: dict[str, Any]) -> None:
    result["superbatch"] = _turns([800, 800, 800], decoded=50)
    assert summary.handicap(result) == 0.5
    rows = {row["loader"]: row for row in summary.table(result)}
    assert rows["superbatch"]["of_floor"] == 0.4
    assert rows["fast"]["superbatch_is"] == 4
    assert "multiplied by 0.50" in report.text(_run(result))
    result["superbatch"] = _turns([800, 800, 800], decoded=200)
    assert summary.handicap(result) == 1


def test_aims_say_no_when_they_are_missed(result: dict[str, Any]) -> None:
    found = {a["what"]: a["met"] for a in summary.aims(result)}
    assert found["x the best peer of any kind (fast)"]
    result["superbatch"] = _turns([50] * 3, decoded=100)
    assert not any(a["met"] for a in summary.aims(result))


def test_the_report_says_what_it_is(result: dict[str, Any], tmp_path: Path) -> None:
    text = report.text(_run(result))
    assert "cannot: not installed" in text
    assert "quick" not in text
    assert "**quick" in report.text(_run(result, quick=True))
    for turn in result["floor"]:
        turn["others"] = 0.4
    assert "took up to 40% of the cores" in report.text(_run(result))


def test_the_figure_is_drawn(result: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib of the extra 'bench'")
    assert report.plot(_run(result), tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert not report.plot({**_run(result), "workloads": []}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
