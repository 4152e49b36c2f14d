"""The quality of a shuffle, against counting samples one by one and against shuffles that are simulated."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from superbatch import quality
from superbatch.archive.chunks import Chunks
from superbatch.archive.plan import Plan
from superbatch.archive.sequences import Axis
from superbatch.errors import ArgumentError
from tests import brute

LINES = [brute.Line([12, 12, 12, 5], 4, 1), brute.Line([6, 6], 3, 1)]


def make(lines: Sequence[brute.Line], **changed: Any) -> Plan:
    given_ = {"samples": 96, "sequences": 4, "batch_size": 12, **changed}
    return Plan([line.axis(str(i)) for i, line in enumerate(lines)], **given_)


def entropy(origins: list[Any]) -> float:
    """In bits, with Miller's correction."""
    n, counts = len(origins), Counter(origins)
    plug_in = -sum(c / n * math.log2(c / n) for c in counts.values())
    return plug_in + (len(counts) - 1) / (2 * n * math.log(2))


def effective(origins: list[Any], correlation: float) -> float:
    # The variance of a mean, written out: the correlation of each pair of samples.
    n = len(origins)
    pairs = sum(
        1 if i == j else correlation for i in range(n) for j in range(n) if origins[i] == origins[j]
    )
    return n * n / pairs


def served(plan: Plan, superbatches: range, epoch: int) -> list[list[tuple[int, ...]]]:
    """The windows of each batch, as a training loop would get them."""
    batches = []
    for index in superbatches:
        starts = iter(plan.superbatch(epoch, index).starts.tolist())
        for size in plan.batch_sizes(index):
            batches.append([tuple(next(starts)) for _ in range(size)])
    return batches


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[brute.Line], Plan, int]:
    """Lines, the plan, and how many superbatches at the beginning are drawn from fewer sequences."""
    first = draw(brute.lines(most=16))
    lines = [first, *draw(st.lists(brute.lines(most=8, weighted=False), max_size=1))]
    coverage = "random" if first.weights else draw(st.sampled_from(["random", "once"]))
    batch_size = draw(st.integers(1, 9))
    samples = batch_size * draw(st.integers(1, 5))
    sequences = draw(st.integers(1, min(samples, 6)))
    first_sequences = growing = draw(st.integers(1, sequences))
    plan = make(
        lines,
        samples=samples,
        sequences=sequences,
        batch_size=batch_size,
        first=first_sequences,
        coverage=coverage,
    )
    small = 0
    while growing < sequences:
        growing, small = 2 * growing, small + 1
    return lines, plan, small


@given(plans(), st.integers(1, 4), st.integers(0, 2), st.floats(0, 1))
def test_what_is_served_is_counted_right(case, superbatches, epoch, correlation) -> None:
    lines, plan, small = case
    found = quality.of_plan(
        plan, superbatches=superbatches, epoch=epoch, correlation=correlation, replays=2.5
    )
    count = min(superbatches, plan.epoch_superbatches or superbatches)
    first = min(small, (plan.epoch_superbatches or 100) - count)
    batches = served(plan, range(first, first + count), epoch)
    origins = [[brute.owner(lines, start) for start in batch] for batch in batches]
    assert (found.superbatches, found.batches) == (count, len(batches))
    assert found.fresh == found.samples == sum(map(len, batches))
    assert found.replayed == round(1.5 * found.fresh)
    assert np.allclose(found.entropies, [entropy(o) for o in origins])
    assert found.entropy == pytest.approx(np.mean([entropy(o) for o in origins]))
    assert found.origins.tolist() == [len(set(o)) for o in origins]
    assert found.batch_sequences == pytest.approx(np.mean([len(set(o)) for o in origins]))
    worth = [effective(o, correlation) for o in origins]
    assert found.effective_batch == pytest.approx(np.mean(worth))

    every = brute.windows(lines)
    times = Counter(start for batch in batches for start in batch)
    held = {owner for o in origins for owner in o}
    loaded = [window for window in every if brute.owner(lines, window) in held]
    assert found.windows == len(every)
    assert found.sequences == len({brute.owner(lines, window) for window in every})
    for group, shares in (
        (every, (found.unseen, found.seen_once, found.seen_more)),
        (loaded, (found.loaded_unseen, found.loaded_once, found.loaded_more)),
    ):
        seen = [times[window] for window in group]
        right = [sum(n == 0 for n in seen), sum(n == 1 for n in seen), sum(n > 1 for n in seen)]
        assert np.allclose(shares, np.array(right) / len(group))


def simulated(
    lines, n: int, replace: bool, of: Callable[[list[Any]], float]
) -> tuple[float, float]:
    """Mean over batches out of true shuffles, and its standard error."""
    rng = np.random.default_rng(n)
    owners = [brute.owner(lines, window) for window in brute.windows(lines)]
    names = sorted(set(owners))
    number = np.array([names.index(owner) for owner in owners])
    p = np.ones(1)
    for line in lines:
        p = np.multiply.outer(p, line.probability()).reshape(-1)
    values = [of(number[rng.choice(len(owners), n, replace, p)].tolist()) for _ in range(1500)]
    return float(np.mean(values)), float(np.std(values) / len(values) ** 0.5) + 1e-9


WEIGHTED = [
    brute.Line(LINES[0].sizes, 4, 1, weights=[1.0 + (s % 5) ** 2 for s in range(38)]),
    LINES[1],
]


@pytest.mark.parametrize("batch_size", [2, 12, 48])
@pytest.mark.parametrize(
    ("lines", "coverage"),
    [(LINES, "random"), (LINES, "once"), (WEIGHTED, "random"), ([LINES[0]], "once")],
)
def test_a_true_shuffle_is_what_shuffling_gives(lines, coverage, batch_size) -> None:
    if batch_size > len(brute.windows(lines)):
        return
    plan = make(lines, samples=96, batch_size=batch_size, coverage=coverage)
    found = quality.of_plan(plan, superbatches=1, correlation=0.4)
    if set(plan.batch_sizes(0)) != {
        batch_size
    }:  # expectations are those of the sizes that there are
        shuffle = quality._Shuffle(plan)
        figures = [
            shuffle.entropy(batch_size),
            shuffle.sequences(batch_size),
            shuffle.cluster(batch_size),
        ]
    else:
        figures = [found.shuffled_entropy, found.shuffled_batch_sequences, 0.0]
        figures[2] = quality._Shuffle(plan).cluster(batch_size)

    def cluster(origins: list[int]) -> float:
        return sum(c * c for c in Counter(origins).values()) / len(origins)

    of: list[Callable[[list[Any]], float]] = [entropy, lambda o: len(set(o)), cluster]
    for figure, function in zip(figures, of, strict=True):
        mean, error = simulated(lines, batch_size, coverage == "random", function)
        assert abs(figure - mean) < 4 * error


def test_a_shuffle_of_two_windows_by_hand() -> None:
    # Two sequences of one window each. With replacement, two samples are of one or of both sequences.
    line = brute.Line([1, 1], 1, 1)
    corrected = 1 + 1 / (2 * 2 * math.log(2))  # one bit, and Miller's correction for two sequences
    found = quality.of_plan(make([line], samples=2, batch_size=2, sequences=2), correlation=1.0)
    assert found.shuffled_entropy == pytest.approx(corrected / 2)
    assert found.shuffled_batch_sequences == pytest.approx(1.5)
    assert found.shuffled_effective_batch == pytest.approx(2 / 1.5)
    found = quality.of_plan(
        make([line], samples=2, batch_size=2, sequences=2, coverage="once"), correlation=1.0
    )
    assert found.shuffled_entropy == pytest.approx(corrected)
    assert found.shuffled_batch_sequences == pytest.approx(2)
    assert found.shuffled_effective_batch == pytest.approx(2)
    assert found.score == pytest.approx(1)


@pytest.mark.parametrize("coverage", ["random", "once"])
def test_room_for_all_sequences_is_a_true_shuffle(coverage) -> None:
    line = brute.Line([20] * 60, 6, 1)
    plan = make([line], samples=1152, sequences=200, batch_size=24, coverage=coverage)
    if coverage == "random":
        found = quality.of_plan(plan, superbatches=20, correlation=0.5)
        assert found.score == pytest.approx(1, abs=0.005)
        assert found.batch_sequences / found.shuffled_batch_sequences == pytest.approx(1, abs=0.01)
        assert found.effective_batch / found.shuffled_effective_batch == pytest.approx(1, abs=0.02)
        return
    # Once needs visits of one window for that: else the windows of a visit stay together.
    found = quality.of_plan(
        make([line], samples=1152, sequences=1152, batch_size=24, coverage="once")
    )
    assert found.score == pytest.approx(1, abs=0.01)
    assert (found.unseen, found.seen_once, found.seen_more) == (0, 1, 0)


def test_fewer_sequences_score_lower_and_one_scores_nothing() -> None:
    line = brute.Line([50] * 60, 5, 1)
    scores = [
        quality.of_plan(make([line], samples=240, sequences=n, batch_size=24), superbatches=8).score
        for n in (1, 2, 4, 12, 60)
    ]
    assert scores == sorted(scores)
    assert scores[0] < 0.05
    assert scores[1] < 0.4
    assert scores[-1] > 0.9


def test_one_sequence_in_all_is_as_good_as_it_gets() -> None:
    found = quality.of_plan(make([brute.Line([40], 4, 1)]), correlation=0.5)
    assert (found.sequences, found.shuffled_entropy, found.score) == (1, 0, 1)
    assert found.effective_batch == pytest.approx(12 / (1 + 11 * 0.5))
    assert found.effective_batch == pytest.approx(found.shuffled_effective_batch)


def test_weighted_blocks_beyond_the_last_window_hold_nothing() -> None:
    found = quality.of_plan(make([brute.Line([1, 1, 1], 3, 1, weights=[0.01])]))
    assert (found.windows, found.sequences, found.score) == (1, 1, 1)


def test_an_unshuffled_epoch_scores_what_it_is() -> None:
    line = brute.Line([50] * 20, 5, 1)
    lined_up = quality.of_plan(make([line], coverage="once", shuffle=False))
    shuffled = quality.of_plan(make([line], coverage="once"))
    assert lined_up.score < 0.2 < shuffled.score


@pytest.mark.parametrize("coverage", ["random", "once"])
def test_a_huge_archive_is_measured_from_its_plan_alone(coverage) -> None:
    axes = [
        Axis("time", Chunks.regular(36 * 2_000_000, 36), 2, 3),
        Axis("y", Chunks.regular(704, 704), 128, 1),
        Axis("x", Chunks.regular(548, 548), 128, 1),
    ]
    plan = Plan(axes, samples=4096, sequences=32, batch_size=8, coverage=coverage)
    found = quality.of_plan(plan, correlation=0.3)
    # Each of 8 samples comes from a sequence of its own, in a true shuffle.
    assert found.shuffled_batch_sequences == pytest.approx(8, abs=1e-3)
    assert found.shuffled_superbatch_sequences == pytest.approx(4096, rel=0.01)
    assert found.superbatch_sequences == pytest.approx(32, abs=2)
    assert 0.8 < found.score < 1
    assert 0 < found.seen_once < 1e-6


def test_many_different_sequences_are_taken_together_without_a_difference(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    line = brute.Line([3] * 400, 2, 1)
    line.weights = rng.uniform(0.1, 10, len(line.starts())).tolist()
    plan = make([line], samples=96, sequences=8)
    together = quality.of_plan(plan, correlation=0.2)
    monkeypatch.setattr(quality, "_GROUPS", 10**6)
    apart = quality.of_plan(plan, correlation=0.2)
    for name, value in together.as_dict().items():
        assert value == pytest.approx(getattr(apart, name), rel=1e-4)


@settings(max_examples=20)
@given(plans(), st.integers(1, 30))
def test_measure_looks_at_as_many_superbatches_as_hold_the_batches(case, batches) -> None:
    _, plan, small = case
    found = quality.measure(plan, batches=batches)
    assert found.batches >= min(batches, plan.epoch_batches or batches)
    fewer = found.superbatches - 1
    first = min(small, (plan.epoch_superbatches or 100) - fewer)
    assert not fewer or sum(map(plan.batches, range(first, first + fewer))) < batches

    class Feed:
        pass

    feed = Feed()
    feed.plan = plan  # type: ignore[attr-defined]
    assert quality.measure(feed, batches=batches).as_dict() == found.as_dict()


def test_a_dictionary_that_json_takes_and_a_table_for_people() -> None:
    found = quality.of_plan(make(LINES), correlation=0.25, replays=3)
    figures = found.as_dict()
    assert json.loads(json.dumps(figures)) == figures
    assert figures["score"] == found.score
    assert set(figures) > {"entropy", "shuffled_entropy", "unseen", "replayed", "effective_batch"}
    table = str(found)
    for text in ("true shuffle", "entropy of origin", "effective batch size (correlation 0.25)"):
        assert text in table
    assert f"{found.fresh:,} fresh" in table
    assert f"{found.replayed:,} replayed" in table
    assert f"{found.entropy:.2f}" in table
    assert max(map(len, table.splitlines())) <= 100
    without = quality.of_plan(make(LINES))
    assert without.effective_batch is None
    assert "effective" not in str(without)


def test_shares_that_are_almost_nothing_do_not_look_like_nothing() -> None:
    assert [quality.percent(x) for x in (0, 1e-9, 0.25, 1 - 1e-9, 1)] == [
        "0.0 %",
        "< 0.1 %",
        "25.0 %",
        "> 99.9 %",
        "100.0 %",
    ]


@pytest.mark.parametrize("sequences", [1, 4, 100])
def test_a_picture(tmp_path: Path, sequences: int) -> None:
    found = quality.of_plan(make(LINES, sequences=min(sequences, 96)), correlation=0.3)
    found.plot(tmp_path / "quality.png")
    picture = imread(tmp_path / "quality.png")
    assert picture.shape[0] > 300
    assert picture.shape[1] > 1000
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 20


def test_matplotlib_is_imported_for_pictures_alone() -> None:
    code = "import superbatch.quality, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"superbatches": 0}, "superbatches=0 .*: write an int, 1 or more"),
        ({"replays": 0.5}, "replays=0.5 .*1 or more"),
        ({"correlation": 1.5}, "correlation=1.5 .*: write a number from 0 to 1"),
        ({"correlation": float("nan")}, "correlation=nan"),
        ({"correlation": True}, "correlation=True"),
        ({"correlation": "high"}, "correlation='high'"),
        ({"superbatches": "all"}, "superbatches='all'"),
    ],
)
def test_what_cannot_be_measured(arguments, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        quality.of_plan(make(LINES), **arguments)


def test_what_has_no_plan() -> None:
    with pytest.raises(TypeError, match="dict has no plan to measure"):
        quality.measure({})
    with pytest.raises(ArgumentError, match="batches=0"):
        quality.measure(make(LINES), batches=0)
