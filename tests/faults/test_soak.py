"""A short soak; the long one is run by hand: ``python -m tests.soak --minutes 30``."""

from __future__ import annotations

import pytest

from tests import tally
from tests.soak import run


@pytest.mark.timeout(900)  # two minutes alone, more on a busy machine
def test_random_faults_are_survived(tmp_path):
    faults = run(tmp_path, seconds=0, seed=0, at_least=200)
    tally.faults.update(faults)
    assert faults.total() >= 200
    assert len(faults) >= 8
