"""How a superbatch gets from a loader to the training process.

``shared``: loaders write into shared memory, nothing is sent but the token. ``pipe``: each loader
fills memory of its own and sends the bytes, unpickled, through its connection. Both halves of a
transport have the same few methods; the contract tests run against each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from superbatch.errors import ArgumentError, shown
from superbatch.slots import Layout, PrivateSlots, SharedSlots, open_shared

Views = Sequence[Mapping[str, npt.NDArray[Any]]]

# Pieces of this size stay in the cache of the processor between the two copies of a pipe.
_PIECE = 1 << 20


class Receiver(Protocol):
    """The half in the training process."""

    views: Views

    def descriptors(self) -> list[int]:
        """What loaders have to inherit."""

    def sender(self) -> Sender:
        """The other half, to be pickled and sent to a loader."""

    def receive(self, connection: Connection, slot: int, samples: int) -> None:
        """Take a superbatch that a loader announced."""

    def close(self) -> None:
        """Give the memory back."""


class Sender(Protocol):
    """The half in a loader."""

    announces: bool
    """Whether the training process has to receive before the token."""

    def open(self) -> Views:
        """The slots to fill."""

    def send(self, connection: Connection, slot: int, samples: int) -> None:
        """Bring a filled slot over."""


class SharedReceiver:
    """Slots that both sides have mapped."""

    def __init__(self, layout: Layout, count: int) -> None:
        self._slots = SharedSlots(layout, count)
        self._layout = layout
        self.views: Views = self._slots.views

    def descriptors(self) -> list[int]:
        return self._slots.descriptors()

    def sender(self) -> Sender:
        return SharedSender(self._layout, self.descriptors())

    def receive(self, connection: Connection, slot: int, samples: int) -> None:
        """Nothing to do: the bytes are there."""

    def close(self) -> None:
        self.views = []
        self._slots.close()


class SharedSender:
    """The loader's map of the slots."""

    announces = False

    def __init__(self, layout: Layout, descriptors: list[int]) -> None:
        self._layout, self._descriptors = layout, descriptors

    def open(self) -> Views:
        return open_shared(self._layout, self._descriptors)

    def send(self, connection: Connection, slot: int, samples: int) -> None:
        """Nothing to do: the bytes are there."""


class PipeReceiver:
    """Slots of the training process alone, filled from the loaders' connections."""

    def __init__(self, layout: Layout, count: int) -> None:
        self._slots = PrivateSlots(layout, count)
        self._layout = layout
        self.views: Views = self._slots.views

    def descriptors(self) -> list[int]:
        return []

    def sender(self) -> Sender:
        return PipeSender(self._layout)

    def receive(self, connection: Connection, slot: int, samples: int) -> None:
        for piece in _pieces(self.views[slot], samples):
            connection.recv_bytes_into(piece)

    def close(self) -> None:
        self.views = []
        self._slots.close()


class PipeSender:
    """One slot of the loader's own, used for each superbatch in turn."""

    announces = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._views: Views = []

    def open(self) -> Views:
        own = PrivateSlots(self._layout, 1).views[0]
        self._views = _Everywhere(own)
        return self._views

    def send(self, connection: Connection, slot: int, samples: int) -> None:
        for piece in _pieces(self._views[slot], samples):
            connection.send_bytes(piece)


class _Everywhere(list[Mapping[str, npt.NDArray[Any]]]):
    """A list that has the same one thing at every place."""

    def __init__(self, thing: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__([thing])

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(0)


def _pieces(view: Mapping[str, npt.NDArray[Any]], samples: int) -> list[memoryview]:
    pieces = []
    for array in view.values():
        used = array[:samples]
        if used.size:
            flat = used.reshape(-1).view(np.uint8).data
            pieces += [flat[at : at + _PIECE] for at in range(0, len(flat), _PIECE)]
    return pieces


TRANSPORTS: dict[str, type[SharedReceiver] | type[PipeReceiver]] = {
    "shared": SharedReceiver,
    "pipe": PipeReceiver,
}


def make(transport: str, layout: Layout, count: int) -> Receiver:
    """The training process's half of a transport, by name."""
    if not isinstance(transport, str) or transport not in TRANSPORTS:
        raise ArgumentError(
            f"transport={shown(transport)} is not known: write one of {', '.join(map(repr, TRANSPORTS))}"
        )
    return TRANSPORTS[transport](layout, count)
