"""superbatch demo --stream, from beginning to end, short."""

from __future__ import annotations

import re

import pytest

from superbatch.cli import main


@pytest.mark.parametrize("buffer", ["rounds", "reservoir"])
def test_it_trains_on_running_simulations_and_shows_what_happened(buffer, capsys, tmp_path) -> None:
    command = ["demo", "--stream", "--seconds", "3", "--dir", str(tmp_path), "--buffer", buffer]
    assert main(command) == 0
    told = capsys.readouterr().out

    def number(row: str) -> float:
        found = re.search(rf"^  {row}[^0-9\n]*  ([0-9,.]+)", told, re.MULTILINE)
        assert found, row
        return float(found[1].replace(",", ""))

    error, guess = number("error on a plate"), number("the guess that nothing changes")
    assert 0 < error < 1.5 * guess  # three seconds teach little
    put, served = number("samples put"), number("samples served")
    # what was put last had no time to be served; counted a moment before the end
    assert 0 < served <= put + 1000
    assert 0 < number("staleness") < 10
    assert (number("rounds") > 0) == (buffer == "rounds")
    assert "gaps, torn, evicted                     0, 0, 0" in told
    assert (tmp_path / "demo-stream.png").stat().st_size > 10_000


def test_a_store_and_a_stream_are_two_things(capsys, tmp_path) -> None:
    assert main(["demo", "--stream", "--store", "a.zarr", "--dir", str(tmp_path)]) == 1
    assert "leave --store out, or --stream" in capsys.readouterr().err
