"""Sums that the suite prints at its end: faults tried and survived, bad inputs tried."""

from __future__ import annotations

from collections import Counter

faults: Counter[str] = Counter()
"""Faults of the soak that were survived, by kind."""

inputs: Counter[str] = Counter()
"""Random arguments of public constructors: those that worked, those that were refused in one sentence."""


def lines(passed: int) -> list[str]:
    """What to print; ``passed`` is the number of tests, each with faults of its own, that passed."""
    found = []
    if faults or passed:
        found.append(
            f"faults: {faults.total()} at random moments of a run, all survived; {passed} tests of single faults passed"
        )
        found += [f"  {count:5}  {name}" for name, count in sorted(faults.items())]
    if inputs:
        found.append(
            f"bad inputs: {inputs.total()} tried, {inputs['refused']} refused in one sentence, "
            f"{inputs['worked']} worked"
        )
    return found
