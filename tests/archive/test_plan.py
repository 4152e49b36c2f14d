"""What is promised about samples, checked on the plan against a list of every window."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.chunks import Chunks
from superbatch.archive.plan import Plan, SuperbatchPlan
from superbatch.archive.sequences import Axis
from superbatch.archive.starts import Starts
from superbatch.errors import ArgumentError
from tests import brute


def make(lines: Sequence[brute.Line], **settings: Any) -> Plan:
    return Plan([line.axis(str(i)) for i, line in enumerate(lines)], **settings)


def starts_of(plan: SuperbatchPlan) -> list[tuple[int, ...]]:
    return list(map(tuple, plan.starts.tolist()))


def same(one: SuperbatchPlan, other: SuperbatchPlan) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("starts", "sequences", "sequence_of")
    )


@st.composite
def archives(draw: st.DrawFn, weighted: bool | None = False) -> list[brute.Line]:
    """One to three dimensions; where there are weights, along the first only."""
    first = draw(brute.lines(most=16, weighted=weighted))
    return [first, *draw(st.lists(brute.lines(most=9, weighted=False), max_size=2))]


@st.composite
def settings_(draw: st.DrawFn) -> dict[str, Any]:
    batch_size = draw(st.integers(1, 9))
    samples = batch_size * draw(st.integers(1, 6))
    sequences = draw(st.integers(1, min(samples, 8)))
    return {
        "samples": samples,
        "sequences": sequences,
        "batch_size": batch_size,
        "first": draw(st.one_of(st.none(), st.integers(1, sequences))),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**40)),
    }


def check_bookkeeping(plan: Plan, index: int, found: SuperbatchPlan, lines) -> None:
    """Sizes, owners and rows agree, whatever the coverage."""
    assert len(found.starts) == plan.size(index)
    sizes = plan.batch_sizes(index)
    assert len(sizes) == plan.batches(index)
    assert sum(sizes) == plan.size(index)
    assert all(1 <= size <= plan.batch_size for size in sizes)
    assert plan.size(index) <= plan.samples
    owners = [tuple(found.sequences[k].tolist()) for k in found.sequence_of]
    assert owners == [brute.owner(lines, start) for start in found.starts]
    assert len({tuple(s) for s in found.sequences.tolist()}) == len(found.sequences)
    assert sorted(set(found.sequence_of.tolist())) == list(range(len(found.sequences)))
    rows = found.rows()
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(found.starts)))
    for number, mine in enumerate(rows):
        assert (found.sequence_of[mine] == number).all()


# -- coverage="once" -----------------------------------------------------------------------------


@given(archives(), settings_(), st.integers(1, 4), st.integers(0, 3))
def test_once_serves_each_window_once_over_all_ranks(lines, settings, world_size, epoch) -> None:
    every = brute.windows(lines)
    ranks = {"coverage": "once", "world_size": world_size}
    uneven = settings["batch_size"] == 1 and len(every) % world_size
    if world_size > len(every) or uneven:
        with pytest.raises(ArgumentError, match="ranks"):
            make(lines, **settings, **ranks)
        return
    served: Counter[tuple[int, ...]] = Counter()
    batches = []
    for rank in range(world_size):
        plan = make(lines, **settings, **ranks, rank=rank)
        assert plan.epoch_superbatches is not None
        mine = []
        for index in range(plan.epoch_superbatches):
            found = plan.superbatch(epoch, index)
            check_bookkeeping(plan, index, found, lines)
            assert len(found.starts) > 0
            mine += starts_of(found)
        assert len(mine) == plan.epoch_samples
        assert sum(plan.batches(i) for i in range(plan.epoch_superbatches)) == plan.epoch_batches
        assert plan.batches(plan.epoch_superbatches) == plan.size(plan.epoch_superbatches) == 0
        batches.append([plan.batches(i) for i in range(plan.epoch_superbatches)])
        served.update(mine)
    assert served == Counter(every)
    assert all(b == batches[0] for b in batches)
    # No more batches than have to be: the windows fill all batches but the last of each rank.
    assert sum(batches[0]) == -(-len(every) // (settings["batch_size"] * world_size))


@given(archives(), settings_())
def test_once_without_shuffle_serves_windows_in_their_natural_order(lines, settings) -> None:
    plan = make(lines, **{**settings, "shuffle": False}, coverage="once")
    found = [starts_of(plan.superbatch(0, i)) for i in range(plan.epoch_superbatches or 0)]
    assert [start for superbatch in found for start in superbatch] == brute.windows(lines)


def test_once_loads_about_as_many_sequences_as_it_was_told() -> None:
    line = brute.Line([50] * 400, 5, 2)
    plan = make([line], samples=512, sequences=16, batch_size=8, coverage="once", first=4)
    loaded = [len(plan.superbatch(0, i).sequences) for i in range(plan.epoch_superbatches or 0)]
    assert loaded[0] <= 5
    # What is left of the sequences after their full visits shares visits, so a few have more.
    assert np.mean(loaded[1:-1]) <= 16 * 1.5


# -- coverage="random" ---------------------------------------------------------------------------


@given(archives(weighted=None), settings_(), st.floats(0.05, 1.0), st.integers(0, 50))
def test_random_draws_valid_windows_only(lines, settings, turnover, index) -> None:
    plan = make(lines, **settings, turnover=turnover)
    assert plan.epoch_samples is plan.epoch_batches is plan.epoch_superbatches is None
    found = plan.superbatch(1, index)
    check_bookkeeping(plan, index, found, lines)
    assert set(starts_of(found)) <= set(brute.windows(lines))
    assert plan.size(index) % plan.batch_size == 0
    sequences = {brute.owner(lines, window) for window in brute.windows(lines)}
    if len(sequences) > settings["sequences"]:
        assert len(found.sequences) <= settings["sequences"]


@given(archives(weighted=None), settings_(), st.data())
def test_what_is_drawn_again_is_valid_and_in_memory(lines, settings, data) -> None:
    plan = make(lines, **settings)
    found = plan.superbatch(0, 1)
    rows = np.array(data.draw(st.lists(st.integers(0, len(found.starts) - 1), min_size=1)))
    starts, sequence_of = plan.again(found, rows, 0)
    assert len(starts) == len(sequence_of) == len(rows)
    for start, number in zip(starts.tolist(), sequence_of.tolist(), strict=True):
        assert tuple(start) in set(brute.windows(lines))
        assert brute.owner(lines, start) == tuple(found.sequences[number].tolist())
    again = plan.again(found, rows, 0)
    assert np.array_equal(again[0], starts)
    assert np.array_equal(again[1], sequence_of)


@given(archives(), settings_(), st.integers(0, 20))
def test_each_sequence_gives_as_many_samples_as_it_was_hit(lines, settings, index) -> None:
    plan = make(lines, **settings)
    owners = {brute.owner(lines, window) for window in brute.windows(lines)}
    if len(owners) <= settings["sequences"]:
        return
    hits = Counter(map(tuple, plan.hits(0, index).tolist()))
    assert set(hits) <= owners
    found = plan.superbatch(0, index)
    counts = Counter(tuple(found.sequences[k].tolist()) for k in found.sequence_of)
    share = len(found.starts) / sum(hits.values())
    for sequence, times in hits.items():
        assert times * np.floor(share) <= counts[sequence] <= times * np.ceil(share)


# -- odds ----------------------------------------------------------------------------------------

WIDE = [brute.Line([12, 12, 12, 5], 4, 1), brute.Line([6, 6], 3, 1)]


def weighted(lines: Sequence[brute.Line]) -> list[brute.Line]:
    first = lines[0]
    weights = [1.0 + (s * 5 % 7) for s in first.starts()]
    return [
        brute.Line(first.sizes, first.width, first.per_sequence, first.chosen, weights),
        lines[1],
    ]


def expected(lines: Sequence[brute.Line], draws: int) -> np.ndarray:
    first, second = (line.probability() for line in lines)
    return draws * np.multiply.outer(first, second).reshape(-1)


def tally(lines, starts: list[tuple[int, ...]]) -> list[int]:
    counts = Counter(starts)
    assert set(counts) <= set(brute.windows(lines))
    return [counts[window] for window in brute.windows(lines)]


masked = brute.Line([12, 12, 12, 5], 4, 1, chosen=[0, 1, 2, 9, 10, 11, 12, 20, 33, 34, 35, 36, 37])


@pytest.mark.parametrize("lines", [WIDE, weighted(WIDE), [masked, WIDE[1]]])
def test_100_000_draws_with_room_for_all_sequences(lines) -> None:
    plan = make(lines, samples=10_000, sequences=1000, batch_size=10)
    starts = [s for i in range(10) for s in starts_of(plan.superbatch(3, i))]
    assert len(starts) == 100_000
    assert abs(brute.chi_square(tally(lines, starts), expected(lines, 100_000))) < 4


LONGER = [brute.Line([6] * 24, 4, 1), WIDE[1]]
HOLES = [
    brute.Line([6] * 24, 4, 1, chosen=[s for s in range(141) if s % 9 and s // 20 != 3]),
    WIDE[1],
]


@pytest.mark.parametrize("lines", [LONGER, weighted(LONGER), HOLES])
def test_100_000_draws_with_room_for_some_sequences(lines) -> None:
    # One sample of each hit: of hits of one sequence the draws are independent. The hits themselves
    # are spread more evenly than independent ones, so there is no lower bound.
    room = len({brute.owner(lines, window) for window in brute.windows(lines)}) - 1
    plan = make(lines, samples=room, sequences=room, batch_size=room)
    starts = []
    for number in range(-(-100_000 // room)):
        starts += starts_of(plan.superbatch(number // 100, number % 100))
    assert len(starts) >= 100_000
    assert brute.chi_square(tally(lines, starts), expected(lines, len(starts))) < 4


@pytest.mark.parametrize("lines", [WIDE, weighted(WIDE)])
@pytest.mark.parametrize("turnover", [1.0, 0.25])
def test_draws_inside_of_a_sequence_are_independent(lines, turnover) -> None:
    # Many samples of each sequence: given how many, its windows are drawn as a die is thrown.
    plan = make(lines, samples=4000, sequences=5, batch_size=10, turnover=turnover)
    drawn: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for index in range(25):
        found = plan.superbatch(0, index)
        for start, number in zip(starts_of(found), found.sequence_of, strict=True):
            drawn.setdefault(tuple(found.sequences[number].tolist()), []).append(start)
    odds = dict(zip(brute.windows(lines), expected(lines, 1), strict=True))
    counts, right = [], []
    for sequence, starts in drawn.items():
        mine = [w for w in odds if brute.owner(lines, w) == sequence]
        if len(mine) > 1 and len(starts) > 20 * len(mine):
            total = sum(odds[w] for w in mine)
            number = Counter(starts)
            counts += [number[w] for w in mine]
            right += [odds[w] / total * len(starts) for w in mine]
    assert len(counts) > 60
    # One degree of freedom fewer for each sequence: a lower bound would have to know of it.
    assert brute.chi_square(counts, right) < 4


@pytest.mark.parametrize("number", [0, 3])
def test_a_hit_alone_falls_on_each_sequence_by_what_it_holds(number) -> None:
    lines = weighted(WIDE)
    odds: Counter[tuple[int, ...]] = Counter()
    for window, p in zip(brute.windows(lines), expected(lines, 1), strict=True):
        odds[brute.owner(lines, window)] += p
    plan = make(lines, samples=8, sequences=4, batch_size=8)
    hits = Counter(tuple(plan.hits(epoch, 0)[number].tolist()) for epoch in range(2500))
    counts = [hits[s] for s in odds]
    assert abs(brute.chi_square(counts, [2500 * p for p in odds.values()])) < 4


def test_any_row_of_any_superbatch_holds_any_window() -> None:
    # From one end to the other: row 3 of superbatch 2, over seeds.
    lines = [brute.Line([10, 10, 6], 3, 1)]
    counts = np.zeros(24)
    for seed in range(1200):
        plan = make(lines, samples=8, sequences=4, batch_size=4, seed=seed)
        counts[plan.superbatch(0, 2).starts[3, 0]] += 1
    assert abs(brute.chi_square(counts, np.full(24, 50.0))) < 4


# -- pure ----------------------------------------------------------------------------------------


@given(
    archives(),
    settings_(),
    st.sampled_from(["random", "once"]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=8),
)
def test_a_superbatch_depends_on_its_place_alone(lines, settings, coverage, places) -> None:
    if coverage == "once" and len(brute.windows(lines)) < settings["samples"] * 6:
        places = [(epoch, 0) for epoch, _ in places]
    plan = make(lines, **settings, coverage=coverage)
    first = {place: plan.superbatch(*place) for place in places}
    other = pickle.loads(pickle.dumps(make(lines, **settings, coverage=coverage)))
    for place in sorted(first, reverse=True):
        assert same(other.superbatch(*place), first[place])
        assert same(plan.superbatch(*place), first[place])


LONG = [brute.Line([20] * 30, 5, 1)]


# situation: four loaders and one seed; the order of epoch 0 and of epoch 1
@pytest.mark.parametrize("sequences", [8, 64])  # 64: with room for all there are
@pytest.mark.parametrize("coverage", ["random", "once"])
def test_loaders_epochs_seeds_and_ranks_differ_and_a_second_run_repeats_them(
    coverage, sequences
) -> None:
    settings = {"samples": 64, "sequences": sequences, "batch_size": 8}

    def run() -> dict[tuple[int, ...], tuple]:
        return {
            (seed, rank, epoch, index): tuple(
                starts_of(
                    make(
                        LONG, **settings, coverage=coverage, seed=seed, rank=rank, world_size=2
                    ).superbatch(epoch, index)
                )
            )
            for seed in (0, 1)
            for rank in (0, 1)
            for epoch in (0, 1)
            for index in range(4)  # loader 0 makes superbatch 0, loader 1 superbatch 1, ...
        }

    first = run()
    assert len(set(first.values())) == len(first)
    assert len({tuple(sorted(starts)) for starts in first.values()}) == len(first)
    assert run() == first


@pytest.mark.parametrize("coverage", ["random", "once"])
def test_the_rows_of_a_slot_are_shuffled(coverage) -> None:
    plan = make(LONG, samples=512, sequences=8, batch_size=8, coverage=coverage)
    found = plan.superbatch(0, 0)
    changes = np.count_nonzero(np.diff(found.sequence_of))
    # Neighbours of a shuffled slot of 8 equal sequences are of different ones 7 times in 8.
    assert changes > 0.8 * 511


# -- turnover ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turnover", "kept"), [(1.0, 0), (0.5, 16), (0.25, 24), (0.01, 31), (1 / 3, 21)]
)
def test_turnover_keeps_a_share_of_the_sequences(turnover, kept) -> None:
    lines = [brute.Line([1] * 5000, 1, 1)]
    plan = make(lines, samples=64, sequences=32, batch_size=8, turnover=turnover, first=8)
    for index in range(2, 6):  # after those with 8 and 16
        now, then = plan.hits(0, index), plan.hits(0, index + 1)
        assert len(now) == 32
        assert np.array_equal(now[32 - kept :], then[:kept])
        held = {tuple(s) for s in plan.superbatch(0, index).sequences.tolist()}
        wanted = {tuple(s) for s in plan.superbatch(0, index + 1).sequences.tolist()}
        assert len(held & wanted) == kept
    # What stays in memory is sampled at new places.
    wide = make(
        [brute.Line([1000] * 60, 9, 1)], samples=64, sequences=32, batch_size=8, turnover=turnover
    )
    assert not set(starts_of(wide.superbatch(0, 3))) & set(starts_of(wide.superbatch(0, 4)))


@pytest.mark.parametrize("coverage", ["random", "once"])
@pytest.mark.parametrize(
    ("first", "grown"), [(3, [3, 6, 12, 24]), (1, [1, 2, 4, 8, 16]), (32, []), (40, []), (31, [31])]
)
def test_superbatches_double_until_they_are_full(first, grown, coverage) -> None:
    lines = [brute.Line([50] * 200, 1, 1)]
    plan = make(lines, samples=640, sequences=32, batch_size=4, first=first, coverage=coverage)
    sizes = [len(plan.superbatch(0, index).starts) for index in range(len(grown) + 2)]
    assert sizes == [20 * n for n in grown] + [640, 640]
    if coverage == "random":
        sequences = [len(plan.hits(0, index)) for index in range(len(sizes))]
        assert sequences == [*grown, 32, 32]


def test_hits_span_the_whole_archive() -> None:
    # 32 hits, one in each of 32 equal parts of all windows; over 32 superbatches, none is left out.
    lines = [brute.Line([1] * 1024, 1, 1)]
    plan = make(lines, samples=32, sequences=32, batch_size=8)
    for index in range(20):
        parts = plan.hits(0, index)[:, 0] // 2 // 32
        assert sorted(parts.tolist()) == list(range(32))
    hit = np.concatenate([plan.hits(0, index)[:, 0] for index in range(32)])
    assert sorted(hit.tolist()) == list(range(0, 2048, 2))


# -- situations ----------------------------------------------------------------------------------


# situation: an array of 100 steps, windows of 10: all 91 starts are reached, and no other
@pytest.mark.parametrize("coverage", ["random", "once"])
@pytest.mark.parametrize("sequences", [2, 64])
def test_all_91_starts_are_reached(coverage, sequences) -> None:
    line = brute.Line([7] * 14 + [2], 10, 2)
    plan = make([line], samples=64, sequences=sequences, batch_size=8, coverage=coverage)
    count = plan.epoch_superbatches or 80
    seen = Counter(s for i in range(count) for (s,) in starts_of(plan.superbatch(0, i)))
    assert sorted(seen) == list(range(91))
    if coverage == "once":
        assert set(seen.values()) == {1}


# situation: a short last chunk; an array shorter than one chunk sequence; exactly one window
@pytest.mark.parametrize(
    "line",
    [
        brute.Line([36, 36, 5], 12, 3),
        brute.Line([36, 36, 5], 12, 1),
        brute.Line([20], 6, 3),
        brute.Line([20], 20, 3),
        brute.Line([7, 7, 6], 20, 1),
        brute.Line([1] * 5, 5, 2),
    ],
)
@pytest.mark.parametrize("coverage", ["random", "once"])
def test_short_arrays(line, coverage) -> None:
    plan = make([line], samples=100, sequences=10, batch_size=4, coverage=coverage)
    count = plan.epoch_superbatches or 30
    seen = {s for i in range(count) for (s,) in starts_of(plan.superbatch(0, i))}
    assert sorted(seen) == line.starts()


def test_no_window_at_all_is_refused() -> None:
    axis = Axis("time", Chunks.regular(20, 5), 21, 1)
    with pytest.raises(ArgumentError, match="no window is valid"):
        Plan([axis], samples=8, sequences=2, batch_size=4)
    none = Axis("time", Chunks.regular(20, 5), 2, 1, Starts(np.empty(0, np.int64)))
    with pytest.raises(ArgumentError, match="no window is valid"):
        Plan([none], samples=8, sequences=2, batch_size=4)


# situation: 1,000 samples, batches of 10, 3 ranks
def test_a_thousand_samples_for_three_ranks() -> None:
    line = brute.Line([10] * 100, 1, 1)
    plans = [
        make(
            [line], samples=100, sequences=10, batch_size=10, coverage="once", rank=r, world_size=3
        )
        for r in range(3)
    ]
    assert [p.epoch_batches for p in plans] == [34] * 3
    assert sorted(p.epoch_samples for p in plans) == [333, 333, 334]
    served = [
        s for p in plans for i in range(p.epoch_superbatches) for s in starts_of(p.superbatch(0, i))
    ]
    assert sorted(served) == [(k,) for k in range(1000)]


def test_a_rank_with_fewer_windows_keeps_one_for_the_last_superbatch() -> None:
    # 17 windows: 9 and 8. The first rank needs three batches of 4, so the other makes three as well.
    plans = [
        make(
            [brute.Line([17], 1, 1)],
            samples=8,
            sequences=2,
            batch_size=4,
            coverage="once",
            rank=rank,
            world_size=2,
        )
        for rank in range(2)
    ]
    assert [[p.batch_sizes(i) for i in range(2)] for p in plans] == [[[4, 4], [1]], [[4, 3], [1]]]
    assert [[len(p.superbatch(0, i).starts) for i in range(2)] for p in plans] == [[8, 1], [7, 1]]


# situation: fewer windows than batch_size, fewer than ranks
def test_fewer_windows_than_a_batch() -> None:
    line = brute.Line([5], 3, 1)
    plan = make([line], samples=8, sequences=4, batch_size=8, coverage="once")
    assert (plan.epoch_batches, plan.epoch_samples, plan.batch_sizes(0)) == (1, 3, [3])
    assert sorted(starts_of(plan.superbatch(0, 0))) == [(0,), (1,), (2,)]
    again = make([line], samples=8, sequences=4, batch_size=8)
    assert set(starts_of(again.superbatch(0, 0))) <= {(0,), (1,), (2,)}
    with pytest.raises(ArgumentError, match="4 ranks cannot share 3 valid windows"):
        make([line], samples=8, sequences=4, batch_size=8, coverage="once", world_size=4)


def test_batches_of_one_that_cannot_be_shared_evenly_are_refused() -> None:
    line = brute.Line([5], 1, 1)
    settings = {"samples": 4, "sequences": 2, "coverage": "once", "world_size": 2}
    with pytest.raises(ArgumentError, match="write batch_size=2 or more"):
        make([line], **settings, batch_size=1)
    make([brute.Line([6], 1, 1)], **settings, batch_size=1)


def test_more_windows_than_can_be_numbered_are_refused() -> None:
    axes = [Axis(name, Chunks.regular(2**31, 2**16), 1, 1) for name in "abc"]
    with pytest.raises(ArgumentError, match="more than can be numbered"):
        Plan(axes, samples=8, sequences=2, batch_size=4)
    Plan(axes[:2], samples=8, sequences=2, batch_size=4, coverage="once").superbatch(0, 10**9)


# situation: an archive of a million chunks and more
@pytest.mark.parametrize("coverage", ["random", "once"])
def test_a_plan_takes_no_memory_by_the_length_of_the_archive(coverage) -> None:
    gap = np.delete(np.arange(30_000), 500)

    def plan(chunks: int) -> Plan:
        axes = [
            Axis("time", Chunks.regular(36 * chunks, 36), 12, 3),
            Axis("y", Chunks.regular(704, 704), 128, 1),
            Axis("gappy", Chunks.regular(36 * 1000, 36), 12, 3, Starts(gap)),
        ]
        return Plan(axes, samples=4096, sequences=32, batch_size=8, coverage=coverage)

    huge, small = plan(2_000_000), plan(2_000)
    assert len(pickle.dumps(huge)) < len(pickle.dumps(small)) + 100
    found = huge.superbatch(5, 1000)
    assert len(np.unique(found.starts[:, 0])) > 300
    assert found.starts[:, 0].max() > 30_000_000
