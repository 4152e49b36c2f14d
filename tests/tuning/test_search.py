"""The search, against a machine whose rates are a formula."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from superbatch.tuning.search import LESS_STALL, better, search
from superbatch.tuning.trial import Choice, Trial

START = Choice(
    samples=1000,
    sequences=32,
    chunks_per_sequence=4,
    turnover=1.0,
    loaders=1,
    threads=4,
    replays=1,
)


class Machine:
    """Decodes 100 chunks a second and copies 50,000 samples; a step takes 10 ms for 10 samples."""

    def __init__(self, memory: int = 10**9) -> None:
        self.memory, self.tried = memory, []

    def __call__(self, choice: Choice, changed: str) -> Trial:
        assert choice not in self.tried, "tried twice"
        self.tried.append(choice)
        if choice.samples > self.memory:
            return Trial(choice, changed, note="does not fit")
        # A window reaches into the chunk after its sequence.
        chunks = choice.sequences * (choice.chunks_per_sequence + 1) * choice.turnover
        seconds = chunks / 100 / min(choice.threads * choice.loaders, 4) * 4
        seconds += choice.samples / 50_000
        training = choice.samples / 1000
        passes = choice.replays if isinstance(choice.replays, int) else choice.replays[1]
        elapsed = max(seconds, training)
        waits = max(0.0, seconds - passes * training)
        return Trial(
            choice,
            changed,
            fresh_per_second=choice.samples / elapsed,
            stall_fraction=waits / elapsed,
            replay_ratio=min(passes, elapsed / training) - 1,
        )


def run(machine: Machine, **options):
    return list(search(START, machine, cores=4, **options))


def test_it_ends_where_no_single_step_is_better() -> None:
    machine = Machine()
    found = run(machine)
    top = found[-1][1]
    assert top.stall_fraction == 0
    assert top.fresh_per_second == pytest.approx(1000, rel=0.04)
    assert better(top, found[0][0])
    # what was kept is the best of all that was tried
    assert not any(better(trial, top) for trial, _ in found)


def test_the_first_is_as_given_and_what_changed_is_said() -> None:
    found = run(Machine())
    assert found[0][0].choice == START
    assert found[0][0].changed == "as given"
    before = START
    for (trial, top), (_, kept) in zip(found[1:], found[:-1], strict=True):
        before = kept.choice
        changed = [n for n in vars(START) if getattr(trial.choice, n) != getattr(before, n)]
        assert changed
        assert all(f"{n} {getattr(before, n)} → " in trial.changed for n in changed)
        assert top in (trial, kept)


def test_what_does_not_fit_is_never_kept() -> None:
    found = run(Machine(memory=1000))
    assert any(trial.note for trial, _ in found)
    assert all(top.choice.samples <= 1000 for _, top in found)


@pytest.mark.parametrize("name", Choice.__dataclass_fields__)
def test_settings_that_are_fixed_stay(name) -> None:
    for trial, _ in run(Machine(), fixed=[name]):
        assert getattr(trial.choice, name) == getattr(START, name)


def test_it_stops_when_time_is_over() -> None:
    clock = itertools.count(1)
    assert len(run(Machine(), on=lambda: next(clock) < 4)) == 4


def test_replays_are_raised_for_stalls_alone() -> None:
    def without_stalls(choice: Choice, changed: str) -> Trial:
        return Trial(choice, changed, fresh_per_second=1.0)

    found = list(search(START, without_stalls, cores=4))
    assert {trial.choice.replays for trial, _ in found} == {1}


def test_lengths_along_several_dimensions_are_left_alone() -> None:
    start = replace(START, chunks_per_sequence={"t": 2, "y": 2})
    found = list(search(start, lambda c, s: Trial(c, s, fresh_per_second=1.0), cores=4))
    assert all(trial.choice.chunks_per_sequence == {"t": 2, "y": 2} for trial, _ in found)


def test_what_better_means() -> None:
    base = Trial(START, "", fresh_per_second=100.0, stall_fraction=0.10)
    waits_less = replace(base, stall_fraction=0.10 - 2 * LESS_STALL, fresh_per_second=50.0)
    faster = replace(base, fresh_per_second=120.0)
    noise = replace(base, fresh_per_second=101.0, stall_fraction=0.095)
    failed = replace(base, note="does not fit", fresh_per_second=1e9)
    assert better(waits_less, base)
    assert not better(base, waits_less)
    assert better(faster, base)
    assert not better(faster, waits_less)
    assert not better(noise, base)
    assert not better(base, noise)
    assert better(base, failed)
    assert not better(failed, base)
    # where nothing is trained, only fresh samples count
    assert better(base, waits_less, stalls=False)
    assert not better(waits_less, base, stalls=False)
