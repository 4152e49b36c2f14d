"""The benchmark of streams runs, and compares what it says."""

from __future__ import annotations

import pytest

from benchmarks import smartredis, stream
from benchmarks.__main__ import main


def test_a_quick_run_has_a_row_for_each_figure(capsys, tmp_path) -> None:
    pytest.importorskip("hiredis", reason="needs hiredis of the extra 'bench'")
    file = tmp_path / "stream.json"
    assert main(["stream", "--quick", "--json", str(file)]) == 0
    told = capsys.readouterr().out
    for row in (
        "read, against redis-py",
        "read, against a plain socket",
        "put, against",
        "noticed",
    ):
        assert row in told
    assert ("read, against SmartRedis" in told) == (smartredis.PYTHON is not None)
    assert "QUICK" in told
    assert file.stat().st_size > 500


def test_a_way_that_reads_something_else_is_found() -> None:
    import numpy as np

    memory, right = np.zeros(4), np.ones(4)
    with pytest.raises(RuntimeError, match="lazy read something else"):
        stream._turns({"lazy": lambda: None}, 1, 1.0, memory, right)


def test_what_is_missed_is_said() -> None:
    found = {
        "quick": False,
        "server": "s",
        "read": {"superbatch": [2.0], "redis-py, hiredis": [1.5], "a plain socket": [2.0]},
        "put": {"superbatch": [6.0], "redis-py, hiredis": [1.0]},
        "notice_ms": [1.0, 1.5, 9.0],
        "load": {"asked": 100.0, "reached": 60.0, "memory_bytes": 1e6},
    }
    rows = [line for line in stream.text(found).splitlines() if line.startswith("| ")][2:]
    assert [row.rsplit("|", 2)[1].strip() for row in rows] == ["no", "yes", "yes", "yes", "no"]
