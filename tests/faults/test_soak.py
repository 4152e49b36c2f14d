"""A short soak; the long one is run by hand: ``python -m tests.soak --minutes 30``."""

from __future__ import annotations

import pytest

from tests.soak import run


@pytest.mark.timeout(900)  # two minutes alone, more on a busy machine
def test_random_faults_are_survived(tmp_path, capsys):
    faults = run(tmp_path, seconds=0, seed=0, at_least=200)
    with capsys.disabled():
        print(f"\nfaults tried and survived: {faults.total()}")
        for name, count in sorted(faults.items()):
            print(f"{count:6}  {name}")
    assert faults.total() >= 200
    assert len(faults) >= 8
