"""Names of keys. All of a producer's keys have its name as hash tag, so that a cluster keeps them together."""

from __future__ import annotations

NAMES = "sb:names"
"""A set: the producers that there are."""

NEWS = "sb:news"
"""A short stream that wakes readers up."""

NEWS_LENGTH = 1000


def index(producer: str) -> str:
    """A stream: one entry for each batch that was put, and one for the end of a run."""
    return f"sb:{{{producer}}}:index"


def state(producer: str) -> str:
    """A hash: the latest run, its next number, whether it is closed."""
    return f"sb:{{{producer}}}:state"


def beat(producer: str) -> str:
    """A key that lives for a day from the last sign of life: the server's clock tells how long ago that was."""
    return f"sb:{{{producer}}}:beat"


def taken(producer: str) -> str:
    """A stream of one entry: run and number of the latest batch that is not needed any more."""
    return f"sb:{{{producer}}}:taken"


def piece(producer: str, run: str, number: int, field: int, part: int) -> str:
    """A part of an array of a batch. No two batches share a key: an old one and a new one cannot mix."""
    return f"sb:{{{producer}}}:v:{run}:{number}:{field}:{part}"


def note(topic: str) -> str:
    """A note among ranks."""
    return f"sb:note:{topic}"
