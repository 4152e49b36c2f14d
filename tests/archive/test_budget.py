"""What fits into memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.budget import MOST_SEQUENCES, PROCESS_BYTES, Budget
from superbatch.errors import ArgumentError

SIZES = st.integers(1, 10**8)


@given(
    SIZES,
    SIZES,
    st.booleans(),
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(1, 500) | st.none(),
    st.integers(10**8, 10**11),
)
def test_the_most_that_fits_is_found(
    sample, sequence, kept, loaders, threads, existing, memory
) -> None:
    budget = Budget(sample, sequence, kept, loaders, threads, existing)

    def total(sequences: int) -> int:
        return budget.bytes(max(1, round(100 / 7 * sequences)), sequences)["total"]

    fitting = [n for n in range(1, MOST_SEQUENCES + 1) if total(n) <= memory]
    if not fitting:
        with pytest.raises(ArgumentError, match="is too little for one sequence"):
            budget.fit(memory, 100, 7)
        return
    samples, sequences = budget.fit(memory, 100, 7)
    assert sequences == max(fitting)
    assert samples == max(1, round(100 / 7 * sequences))


def test_the_parts_add_up() -> None:
    parts = Budget(1000, 5000, kept=False, loaders=2, threads=3).bytes(64, 32)
    assert parts["slots"] == 3 * 64 * 1000
    assert parts["processes"] == 2 * PROCESS_BYTES
    assert parts["total"] == parts["slots"] + parts["sequences"] + parts["processes"]
    # Those that are kept are all in memory.
    kept = Budget(1000, 5000, kept=True, loaders=2, threads=3).bytes(64, 32)
    assert kept["sequences"] >= 2 * 2 * 32 * 5000 > parts["sequences"]
    # No more than there are.
    few = Budget(1000, 5000, kept=True, loaders=2, threads=3, existing=10).bytes(64, 32)
    assert few["sequences"] == 2 * 10 * 5000
