"""What a source of samples has to offer to the loader and to the dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Fields = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""The arrays of one sample: shape and dtype by name."""

Slot = Mapping[str, npt.NDArray[Any]]
"""The memory of one superbatch: arrays of shape ``(samples, *shape)`` by name."""

Place = tuple[int, int]
"""Epoch and superbatch."""

State = Mapping[str, Any]
"""What a stream's superbatch was made of, and where the stream stands after it: plain data, and arrays."""


@dataclass(frozen=True, eq=False)
class Late:
    """Normalisation of a field when a batch is given out, on the device that it lies on.

    Attributes
    ----------
    mean, std : array or None
        Broadcastable to a sample.
    dtype : dtype
        Of the result.
    fill : float or None
        What takes the place of what is missing: NaN where it is None.
    mask : str or None
        The field that says what is there; None where what is missing is NaN.
    """

    mean: npt.NDArray[Any] | None
    std: npt.NDArray[Any] | None
    dtype: np.dtype[Any]
    fill: float | None = None
    mask: str | None = None


@dataclass(frozen=True)
class Settings:
    """What the dataset tells a source about itself."""

    batch_size: int | None
    seed: int
    rank: int
    world_size: int
    shuffle: bool
    loaders: int
    threads: int
    dask: Any = None
    replays: tuple[int, int] = (1, 1)


@dataclass
class Filled:
    """What a loader says about a superbatch that it has made.

    Attributes
    ----------
    samples : int
        Rows of the slot that hold a sample.
    load_seconds, plan_seconds, graph_seconds : float
        The whole superbatch (from its start, or from the end of the one before where that came later),
        its plan, and building and submitting its graph.
    read_seconds, cut_seconds : float
        Time spent on reading and on cutting samples, summed over threads.
    fetch_seconds : float
        Of ``read_seconds``: waiting for bytes, before they are decoded; 0 where that is not known apart.
    idle_seconds : float
        Time that the loader waited for a free slot before it began.
    loader, superbatch : int
        Who made it, and its number in its epoch.
    decoded_bytes : int
        Bytes that had to be decompressed.
    sequences : int
        Chunk sequences that samples were cut from.
    loaded : int
        Blocks that were read for it, the others being in memory still.
    rejected, retried : int
        Samples that ``reject`` turned down, and samples that were drawn again.
    unread : int
        Samples that touch a chunk which could not be read.
    read_retries : int
        Reads that failed and were tried again.
    bad : list of str
        What could not be read, and why.
    began, ended : float
        ``time.monotonic()`` of the machine.
    sizes : sequence of int, optional
        Samples in each batch, where the source settles that: batches stay whole when they are shuffled. One
        of 0 is not served, but keeps its place.
    last : bool
        The stream is over: no superbatch follows.
    state : mapping, optional
        Of a stream: what is needed to make this superbatch again, and to go on after it.
    extra : dict of str to float
        What the source counts beside this; ``Stats.source`` holds the sums.
    dashboard : str
        Where Dask shows what it does, if it does.
    """

    samples: int
    load_seconds: float = 0.0
    plan_seconds: float = 0.0
    graph_seconds: float = 0.0
    read_seconds: float = 0.0
    cut_seconds: float = 0.0
    fetch_seconds: float = 0.0
    idle_seconds: float = 0.0
    loader: int = 0
    superbatch: int = 0
    decoded_bytes: int = 0
    sequences: int = 0
    loaded: int = 0
    rejected: int = 0
    retried: int = 0
    unread: int = 0
    read_retries: int = 0
    bad: list[str] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    sizes: Sequence[int] | None = None
    last: bool = False
    state: State | None = None
    extra: dict[str, float] = field(default_factory=dict)
    dashboard: str = ""


class Filling(Protocol):
    """A superbatch that is being made."""

    def finish(self) -> Filled:
        """Wait until the slot is filled; raise what went wrong."""


class Filler(Protocol):
    """Makes superbatches; lives in a loader process."""

    def start(self, epoch: int, index: int, slot: Slot) -> Filling:
        """Begin to fill a slot with superbatch ``index`` of ``epoch``."""

    def idle(self) -> float | None:
        """Work while no superbatch is asked for; seconds after which to be called again, or None.

        Called by the thread that waits for superbatches, between two of them.
        """

    def stuck(self) -> Exception | None:
        """What hangs, if something does; asked now and then from another thread."""

    def close(self) -> None:
        """Let go of all that is held."""


class Feed(Protocol):
    """A source that is bound to one dataset. It is pickled and sent to the loaders."""

    @property
    def fields(self) -> Fields:
        """The arrays of one sample."""

    @property
    def labels(self) -> Mapping[str, npt.NDArray[Any]]:
        """Of fields that stand for strings: the strings that their numbers count."""

    @property
    def scales(self) -> Mapping[str, Late]:
        """Of fields that are normalised when a batch is given out: how."""

    @property
    def samples(self) -> int:
        """Rows of a slot."""

    @property
    def drops(self) -> bool:
        """Whether superbatches may turn out shorter than planned."""

    @property
    def continues(self) -> bool:
        """Whether superbatches are counted over all epochs: a stream does not begin anew."""

    def superbatches(self, epoch: int) -> int | None:
        """Superbatches in an epoch; None where it does not end, or nobody knows."""

    def batches(self, epoch: int, index: int) -> int:
        """Batches that superbatch ``index`` is planned to have; 1 where nobody knows."""

    def batch_sizes(self, epoch: int, index: int, samples: int) -> Sequence[int]:
        """Samples in each batch of a superbatch that has turned out to hold ``samples``."""

    def epoch_batches(self) -> int | None:
        """Fresh batches in an epoch; None where it does not end."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What has to be equal for a state to be resumed exactly."""

    @property
    def may_change(self) -> Collection[str]:
        """Names in the fingerprint that may differ where a state was taken between two superbatches."""

    def resume(self, index: int, state: State) -> None:
        """Take in what superbatch ``index`` was made of; called in the training process.

        A loader that is started afterwards makes ``index`` again if it is asked for it, and goes on
        after it if it is asked for the next.
        """

    def descriptors(self) -> Sequence[int]:
        """Open files that loaders have to inherit."""

    def open(self) -> Filler:
        """Called once, in the loader process."""


class Source(Protocol):
    """What ``SuperbatchDataset`` takes."""

    def bind(self, settings: Settings) -> Feed:
        """Fix all that depends on the dataset; raise where it cannot work."""


def plain(state: Any) -> Any:
    """The same with lists in the place of arrays, so that any file format can hold it."""
    if isinstance(state, np.ndarray):
        return state.tolist()
    if isinstance(state, Mapping):
        return {name: plain(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [plain(value) for value in state]
    return state
