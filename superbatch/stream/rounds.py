"""Rounds: wait for so many batches, train on them, then wait for the next ones. Knows nothing of a server."""

from __future__ import annotations

from dataclasses import dataclass

from superbatch.arguments import check_count


@dataclass(frozen=True)
class Rounds:
    """A round of batches is trained on together; the next one is fetched meanwhile.

    How often a round is trained on is the dataset's ``replays``; whether in the order of production or
    shuffled its ``shuffle``. Each batch that was put is in exactly one round. The round at the end of the stream
    holds what is left.

    Parameters
    ----------
    batches : int
        Batches in a round.

    Examples
    --------
    >>> Rounds(100).batches
    100
    """

    batches: int

    def __post_init__(self) -> None:
        check_count("batches", self.batches, 1)
