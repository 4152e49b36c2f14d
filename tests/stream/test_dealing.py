"""What ranks get of rounds, without a server: whatever is dealt out, each batch to one rank, once."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from superbatch.stream.dealing import Dealer


@settings(max_examples=150, deadline=None)
@given(
    assign=st.sampled_from(["batches", "samples", "producers"]),
    world=st.integers(1, 4),
    each=st.integers(1, 3),
    producers=st.lists(st.integers(0, 5), max_size=40),
    size=st.integers(1, 9),
    restart=st.booleans(),
)
def test_each_batch_goes_to_one_rank_and_all_get_as_many(
    assign, world, each, producers, size, restart
):
    dealer, rounds, numbers = Dealer(assign, each * world, world), [], itertools.count()
    names = [[f"sim{p}", "a", next(numbers), size, 0.0] for p in producers]
    for name in names:
        if dealer.add(name):
            rounds.append(dealer.deal())
            if restart:  # from what it says of itself
                dealer = Dealer(assign, each * world, world, dealer.state())
    rounds.append(dealer.deal())  # the end of the stream
    rows: dict[int, list[tuple[int, int]]] = {}
    owner: dict[str, int] = {}
    for shares in rounds:
        assert len({len(share) for share in shares}) == 1
        assert len({sum(end - begin for _, begin, end in share) for share in shares}) == 1
        for rank, share in enumerate(shares):
            for name, begin, end in share:
                rows.setdefault(name[2], []).append((begin, end))
                if assign == "producers":
                    assert owner.setdefault(name[0], rank) == rank
            mine = [name[2] for name, _, _ in share]
            assert mine == sorted(mine)  # in the order of production
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        if assign != "samples":
            assert spans == [(0, size)]
        else:
            assert sum(end - begin for begin, end in spans) == size // world * world
    if assign == "batches":
        assert len(names) - len(rows) < world
    if assign == "samples" and size >= world:
        assert len(rows) == len(names)


def test_ranks_may_come_and_go_between_rounds():
    dealer = Dealer("producers", 4, 4)
    for producer in range(4):
        dealer.add([f"sim{producer}", "a", 0, 1, 0.0])
    dealer.deal()
    fewer = Dealer("producers", 4, 2, dealer.state())
    done = [fewer.add([f"sim{producer}", "a", 1, 1, 0.0]) for producer in range(4)]
    assert done == [False, False, False, True]
    shares = fewer.deal()
    assert [[name[0] for name, _, _ in share] for share in shares] == [
        ["sim0", "sim2"],
        ["sim1", "sim3"],
    ]
