"""StreamSource: what is trained on while it is being produced."""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from superbatch.arguments import check_count, check_seconds
from superbatch.errors import ArgumentError, SuperbatchError, shown
from superbatch.source import Settings
from superbatch.stream.dealing import ASSIGNS
from superbatch.stream.entry import Reader
from superbatch.stream.feed import StreamFeed
from superbatch.stream.fetching import Shape
from superbatch.stream.following import Following
from superbatch.stream.meeting import Group
from superbatch.stream.reservoir import Reservoir
from superbatch.stream.rounds import Rounds


class StreamSource:
    """The batches of running producers, for :class:`superbatch.SuperbatchDataset`.

    Parameters
    ----------
    address : str or Server
        Of the server that the producers put to.
    producers : str or sequence of str
        A pattern such as ``"sim*"``, which producers may join at any time, or names.
    buffer : Rounds or Reservoir
        What is trained on together; for ``latest`` left out.
    latest : bool
        Always the newest batch, passing over those before it: for producers that overwrite.
    expect : int, optional
        So many producers have to have been there before the stream can be over; by default one, or as many as
        there are names.
    largest : int, optional
        Samples in a batch, at the most: room is made for them. By default as many as the first batch has.
    timeout : float
        Seconds that a batch is waited for, the first one included.
    silence : float
        Seconds without a sign of life after which a producer counts as dead.
    assign : {"batches", "samples", "producers"}, optional
        What each of several ranks gets: batches in turn (the default), a part of each batch, or all batches of
        some of the producers. With ``latest``, a part of each batch.
    group : str, optional
        A name of this run that all its ranks write, and no other run; needed where ``torch.distributed`` is not
        initialised, which settles one otherwise: making the dataset is then a collective call.
    connect : callable, optional
        ``connect(address, timeout=...)`` returns what batches are read with, for what other clients have put.

    Examples
    --------
    >>> import numpy as np, superbatch as sb
    >>> from superbatch import stream
    >>> with stream.Server() as server:
    ...     with stream.Producer(server.address, "sim0") as producer:
    ...         for step in range(4):
    ...             producer.put(x=np.full((8, 2), step, "f4"))
    ...     source = stream.StreamSource(server.address, "sim*", stream.Rounds(2))
    ...     with sb.SuperbatchDataset(source, None, replays=1, shuffle=False) as dataset:
    ...         [batch["x"][0, 0].item() for batch in dataset]
    [0.0, 1.0, 2.0, 3.0]
    """

    def __init__(
        self,
        address: Any,
        producers: str | Sequence[str] = "*",
        buffer: Rounds | Reservoir | None = None,
        *,
        latest: bool = False,
        expect: int | None = None,
        largest: int | None = None,
        timeout: float = 60.0,
        silence: float = 30.0,
        assign: str | None = None,
        group: str | None = None,
        connect: Callable[..., Reader] | None = None,
    ) -> None:
        check_seconds("timeout", timeout)
        check_seconds("silence", silence)
        if latest:
            if buffer is not None:
                raise ArgumentError(
                    f"latest=True keeps the newest batch alone and needs no buffer: leave out {shown(buffer)}"
                )
            buffer = Rounds(1)
        if not isinstance(buffer, (Rounds, Reservoir)):
            raise ArgumentError(
                f"buffer={shown(buffer)} is no buffer: write stream.Rounds(batches), or "
                f"stream.Reservoir(capacity, watermark)"
            )
        names = not isinstance(producers, str)
        if names and not isinstance(producers, (list, tuple)):
            raise ArgumentError(
                f"producers={shown(producers)} names none: write a pattern such as 'sim*', or a list of names"
            )
        if not producers or (names and not all(isinstance(p, str) for p in producers)):
            raise ArgumentError(
                f"producers={shown(producers)} names none: write a pattern such as 'sim*', or a list of names"
            )
        if expect is None:
            expect = len(producers) if names else 1
        check_count("expect", expect, 1)
        if largest is not None:
            check_count("largest", largest, 1)
        self.address = getattr(address, "address", address)
        self.producers = list(producers) if names else producers
        self.buffer, self.latest, self.expect = buffer, bool(latest), int(expect)
        self.largest, self.timeout, self.silence = largest, float(timeout), float(silence)
        if assign is None:
            assign = "samples" if latest else "batches"
        if assign not in ASSIGNS:
            raise ArgumentError(
                f"assign={shown(assign)} is not known: write one of {', '.join(map(repr, ASSIGNS))}"
            )
        if latest and assign != "samples":
            raise ArgumentError(
                f"assign={shown(assign)}, but the newest batch is one: leave it out, and each rank gets a part of it"
            )
        self.assign, self.group, self.connect = assign, group, connect

    def bind(self, settings: Settings) -> StreamFeed:
        """Connect, and wait for the first batch, which says what batches look like.

        Raises
        ------
        ArgumentError
            What does not go with a stream.
        SuperbatchError
            No server, or no batch within ``timeout``.
        """
        self._check(settings)
        group = self._group(settings)
        connect = self.connect or _reader()
        with contextlib.closing(connect(self.address, timeout=self.timeout)) as reader:
            following = Following(
                reader, self.producers, expect=1, timeout=self.timeout, silence=self.silence
            )
            entry = following.next(what=f"the first batch of producers {self.producers!r}")
        if entry is None:
            raise SuperbatchError(
                f"producers {self.producers!r} closed their streams without a batch: put one before closing"
            )
        largest = max(self.largest or 0, entry.samples)
        if isinstance(self.buffer, Reservoir) and largest > self.buffer.capacity:
            raise ArgumentError(
                f"a batch has {largest} samples, more than capacity={self.buffer.capacity}: write a larger capacity"
            )
        return StreamFeed(
            address=self.address,
            connect=connect,
            producers=self.producers,
            buffer=self.buffer,
            latest=self.latest,
            expect=self.expect,
            timeout=self.timeout,
            silence=self.silence,
            shape=Shape(dict(entry.fields), largest),
            settings=settings,
            group=group,
        )

    def _group(self, settings: Settings) -> Group | None:
        """The ranks that share the stream, where there are several."""
        if settings.world_size == 1:
            return None
        buffer = self.buffer
        uneven = isinstance(buffer, Rounds) and buffer.batches % settings.world_size
        if isinstance(buffer, Rounds) and uneven and self.assign != "samples":
            raise ArgumentError(
                f"a round of {buffer.batches} batches cannot be dealt out evenly to "
                f"world_size={settings.world_size} ranks: write a multiple of it"
            )
        name = self.group
        if name is None:
            import torch.distributed as dist

            if not (dist.is_available() and dist.is_initialized()):
                raise ArgumentError(
                    f"world_size={settings.world_size} ranks have to meet on the server: initialise "
                    f"torch.distributed first, or write the same group= on all of them, new for each run"
                )
            box = [uuid.uuid4().hex]
            dist.broadcast_object_list(box, src=0)
            name = box[0]
        return Group(name, settings.rank, settings.world_size, self.assign)

    def _check(self, settings: Settings) -> None:
        if settings.loaders > 1:
            raise ArgumentError(
                f"loaders={settings.loaders}, but a stream is read in order, by one: write loaders=1"
            )
        if settings.dask is not None:
            raise ArgumentError("dask= reads archives; a stream needs none: leave it out")
        if isinstance(self.buffer, Reservoir):
            if settings.replays != (1, 1):
                raise ArgumentError(
                    f"replays={settings.replays}, but a Reservoir draws samples again by itself: write replays=1"
                )
            size = settings.batch_size
            if size is not None and size > self.buffer.capacity:
                raise ArgumentError(
                    f"batch_size={size} is more than capacity={self.buffer.capacity}: write a larger capacity"
                )


def _reader() -> Callable[..., Reader]:
    """What reads the batches of :class:`superbatch.stream.Producer`."""
    module = importlib.import_module("superbatch.stream.reader")
    reader: Callable[..., Reader] = module.Reader
    return reader
