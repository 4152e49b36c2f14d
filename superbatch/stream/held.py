"""What a producer has on the server, oldest first: earlier lives of it included, which may not have been closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superbatch.stream import frame

# Batches that are removed at a time, where many were taken at once.
_REMOVED = 64


@dataclass(frozen=True)
class Batch:
    """A batch that is there.

    Attributes
    ----------
    stamp : bytes
        The identifier of its entry in the index.
    run : str
    number : int
    keys : list of str
        Of its values.
    """

    stamp: bytes
    run: str
    number: int
    keys: Sequence[str]


class Held:
    """The batches of one producer that retention may have to remove.

    Parameters
    ----------
    producer : str
    index : sequence of (bytes, mapping)
        The producer's index as the server has it.
    """

    def __init__(
        self, producer: str, index: Sequence[tuple[bytes, Mapping[bytes, bytes]]] = ()
    ) -> None:
        self.batches: deque[Batch] = deque()
        for stamp, values in index:
            entry = frame.entry(producer, values)
            if not entry.last:
                names = frame.names(entry.fields, producer, entry.run, entry.number, entry.samples)
                self.batches.append(Batch(stamp, entry.run, entry.number, names))

    def add(self, batch: Batch) -> None:
        """A batch has been put."""
        self.batches.append(batch)

    def untaken(self, taken: tuple[str, int] | None) -> int:
        """How many come after the one that was taken last."""
        return len(self.batches) - self._taken(taken)

    def beyond(self, keep: int) -> list[Batch]:
        """The oldest, to be removed so that ``keep`` are left."""
        return list(self.batches)[: max(0, len(self.batches) - keep)][:_REMOVED]

    def done(self, taken: tuple[str, int] | None) -> list[Batch]:
        """Those up to the one that was taken last."""
        return list(self.batches)[: self._taken(taken)][:_REMOVED]

    def remove(self, gone: Sequence[Batch]) -> None:
        """The oldest so many are not there any more."""
        for _ in gone:
            self.batches.popleft()

    def _taken(self, taken: tuple[str, int] | None) -> int:
        """How many come up to the one that was taken last; none where that is not here any more."""
        places = [k + 1 for k, b in enumerate(self.batches) if (b.run, b.number) == taken]
        return places[-1] if places else 0
