"""The benchmark of several archives runs, and prints what it measured."""

from __future__ import annotations

import re

from benchmarks import multimodal


def test_a_short_run_prints_a_row_for_each_kind_and_for_all(tmp_path, capsys) -> None:
    short = ["w3", "--days", "2", "--rounds", "1", "--superbatches", "1", "--cache", str(tmp_path)]
    assert multimodal.main(short) == 0
    out = capsys.readouterr().out
    for kind in ("images", "forecasts", "series", "all together"):
        assert re.search(rf"^\| {kind} \| [\d,]+ \|", out, re.MULTILINE)
    assert re.search(r"All together take \d+\.\d\d × the sum", out)


def test_an_unknown_name_is_refused(capsys) -> None:
    assert multimodal.main(["w9"]) == 2
    assert "choose from w2, w3" in capsys.readouterr().out
