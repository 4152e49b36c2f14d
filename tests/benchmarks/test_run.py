"""The runner, end to end, on a tiny W1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__, race
from tests.benchmarks.conftest import TINY


@pytest.fixture
def settings(cache: Path) -> race.Settings:
    return race.Settings(
        repeat=1, seconds=0.1, stall_seconds=0.5, quick=True, cores=2, cache=cache, **TINY
    )


def test_w1_measures_all_that_is_promised(settings: race.Settings) -> None:
    result = race.run("w1", settings, lambda line: None)
    json.dumps(result)
    assert result["checked"] == result["batch_size"]
    assert len(result["floor"]) == len(result["superbatch"]) == len(result["turnover"]) == 1
    for turn in (*result["floor"], *result["superbatch"]):
        assert turn["samples"] >= result["samples"]
        assert turn["seconds"] > 0
        assert turn["decoded_bytes"] > 0
        assert 0 <= turn["others"] <= 1
    ours = result["superbatch"][0]
    assert ours["cpu_seconds"] > 0
    assert ours["first_batch_seconds"] > 0
    assert ours["graph_seconds"] > 0
    # A quarter of the sequences is new, and so is a quarter of the bytes.
    assert result["turnover"][0]["decoded_bytes"] / result["turnover"][0]["samples"] < (
        ours["decoded_bytes"] / ours["samples"]
    )
    details = result["details"]
    assert min(details["served"]["superbatch"]) > 0
    assert min(details["served"]["index_select"]) > 0
    assert details["memory"]["peak_bytes"] > details["memory"]["before_bytes"] > 0
    assert 0 <= details["stall"]["stall_fraction"] <= 1
    assert details["stall"]["iterations"] > 0


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["w17"]) == 2
    assert "choose from w1, w1-fine" in capsys.readouterr().out
