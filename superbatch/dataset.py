"""SuperbatchDataset: what the training loop iterates over."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from superbatch import replay
from superbatch import transport as transport_
from superbatch.arguments import check_count, check_seconds, usable_cores
from superbatch.arrays import NumpyBatches
from superbatch.closing import Closing
from superbatch.epochs import Cursor, Epochs
from superbatch.errors import ArgumentError, SuperbatchError, shown
from superbatch.progress import Progress
from superbatch.quality import Quality, measure
from superbatch.ranks import Agreement, Ranks
from superbatch.replay import Replays
from superbatch.serve import Batch, Device, Finish, Host
from superbatch.serving import Serving
from superbatch.slots import Layout
from superbatch.source import Filled, Place, Settings, Source, plain
from superbatch.stats import Meter, Stats
from superbatch.supervise import Loaders

# How often an iteration looks for a loader's failure while it serves what it has.
_LOOK_UP = 0.25
# Shorter interruptions are not counted as stalls.
_NOTICEABLE = 0.002
_STATE_VERSION = 1


class SuperbatchDataset(Closing, IterableDataset[Batch]):
    """Batches out of superbatches that background processes load.

    Iterate over it directly, or wrap it in ``DataLoader(dataset, batch_size=None, num_workers=0)``. Each
    ``iter()`` that a batch is taken from begins an epoch: the first is epoch 0, the next epoch 1, unless
    ``set_epoch`` says otherwise. A new one ends the one before.

    Parameters
    ----------
    source : Source
        Where samples come from, such as :class:`superbatch.ArchiveSource`.
    batch_size : int or None
        Samples in a batch. A superbatch is cut to a whole number of batches. None: the batches that the
        producers of a stream have put.
    loaders : int
        Background processes. One is enough where its threads can use all cores.
    threads : int, optional
        Dask threads in each loader; by default the usable cores, shared among the loaders.
    replays : int, (int, int) or "auto"
        Passes over each superbatch: a number, or the least and the most. In a range, passes are made until
        the next superbatch is there. ``"auto"``: up to the measured ratio of loading to training time, at most 5.
    batches_per_epoch : int, optional
        End an epoch after so many batches, replays included.
    shuffle : bool
        False: samples come in the order in which the plan draws them; with ``coverage="once"`` in
        their natural order.
    seed : int
    deterministic : bool
        Fix the number of replays at the least, so that a run repeats batch by batch.
    rank, world_size : int, optional
        Taken from ``torch.distributed`` where it is initialised, else 0 and 1.
    device : str or torch.device, optional
        Keep the superbatch there, and replay it there.
    dask : str or callable, optional
        An existing cluster: a scheduler's address, or a function that returns a ``distributed.Client``.
    transport : {"shared", "pipe"}
        Shared memory, or bytes through a pipe where there is too little of it.
    restarts : int
        How many loaders that die are replaced.
    timeout : float
        Seconds to wait for a superbatch.
    progress : bool
        Show a progress line: fresh samples a second, stall, replays, and how many superbatches are filled
        beyond the one at hand.

    Raises
    ------
    ArgumentError
        Whatever cannot work, in one sentence.
    SuperbatchError
        Shared memory is too small for the slots.

    Examples
    --------
    >>> import numpy as np, xarray as xr, superbatch as sb
    >>> field = xr.DataArray(np.zeros((100, 32, 32), "f4"), dims=("time", "y", "x"))
    >>> source = sb.ArchiveSource({"field": sb.Window(field, time=4, y=16, x=16)}, samples=64)
    >>> with sb.SuperbatchDataset(source, batch_size=8, batches_per_epoch=3) as dataset:
    ...     [tuple(batch["field"].shape) for batch in dataset]
    [(8, 4, 16, 16), (8, 4, 16, 16), (8, 4, 16, 16)]
    """

    def __init__(
        self,
        source: Source,
        batch_size: int | None = 32,
        *,
        loaders: int = 1,
        threads: int | None = None,
        replays: int | tuple[int, int] | str = (1, 4),
        batches_per_epoch: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        deterministic: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        device: str | torch.device | None = None,
        dask: str | Callable[[], Any] | None = None,
        transport: str = "shared",
        restarts: int = 0,
        timeout: float = 300.0,
        progress: bool = False,
    ) -> None:
        if not hasattr(source, "bind"):
            raise TypeError(
                f"source is {type(source).__name__}: write a source, such as sb.ArchiveSource(...)"
            )
        if batch_size is not None:
            check_count("batch_size", batch_size, 1)
        check_count("loaders", loaders, 1)
        check_count("restarts", restarts, 0)
        check_count("seed", seed, 0)
        if batches_per_epoch is not None:
            check_count("batches_per_epoch", batches_per_epoch, 1)
        loaders, restarts = int(loaders), int(restarts)
        if threads is None:
            threads = max(1, usable_cores() // loaders)
        check_count("threads", threads, 1)
        threads = int(threads)
        check_seconds("timeout", timeout)
        if dask is not None and not isinstance(dask, str) and not callable(dask):
            raise TypeError(
                f"dask is {type(dask).__name__}: write a scheduler's address, or a function that returns a Client"
            )
        self._replays = Replays.of(replays, deterministic)
        self._ranks = Ranks.of(rank, world_size)
        self._agreement = None if self._replays.fixed else Agreement(self._ranks)
        self.batch_size, self.seed, self.shuffle = batch_size, int(seed), bool(shuffle)
        self.batches_per_epoch, self.progress = batches_per_epoch, progress
        self._feed = source.bind(
            Settings(
                batch_size=batch_size,
                seed=self.seed,
                rank=self._ranks.rank,
                world_size=self._ranks.world_size,
                shuffle=self.shuffle,
                loaders=loaders,
                threads=threads,
                dask=dask,
                replays=(self._replays.least, self._replays.most),
            )
        )
        if self._feed.drops and not self._replays.fixed and self._ranks.world_size > 1:
            raise ArgumentError(
                f"replays={shown(replays)} are settled among ranks after equal passes, but reject or "
                f'on_error="skip" makes passes of unequal length: write replays as one int'
            )
        self._epochs = Epochs(self._feed, self._replays.least, batches_per_epoch)
        self._finish = Finish(self._feed.labels, self._feed.scales)
        server = Host() if device is None else Device(device)
        # One slot is served while each loader fills one.
        self._receiver = transport_.make(
            transport, Layout(self._feed.fields, self._feed.samples), loaders + 1
        )
        self._meter = Meter(loaders * threads)
        self._serving = Serving(
            self._feed,
            self._receiver,
            server,
            self._meter,
            loaders,
            restarts,
            float(timeout),
            self._epochs.following,
        )
        self._begun = False  # whether a batch of the cursor's epoch was asked for since it was set
        self._epoch_was_set = False  # by set_epoch, for the next iter()
        self._generation = 0  # of iterators: only the latest may go on
        self._serve_seconds = 0.0  # of the last pass
        self._looked = 0.0  # when an iteration last looked for a failure
        self._closed = False
        self._owner = os.getpid()

    # -- iteration -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        if get_worker_info() is not None or os.getpid() != self._owner:
            raise SuperbatchError(
                "a SuperbatchDataset loads in processes of its own and cannot be used in another one: "
                "write DataLoader(dataset, batch_size=None, num_workers=0)"
            )
        if self._closed:
            raise SuperbatchError("the dataset is closed: make a new one")
        # A state may have been taken after the last batch of its epoch: what follows is the next.
        if self._begun or (self._epochs.ended(self._epochs.cursor) and not self._epoch_was_set):
            self._epochs.cursor = self._epochs.after(self._epochs.cursor)
        self._begun = self._epoch_was_set = False
        self._generation += 1
        self._epochs.extra = 0
        if not self._feed.continues:
            self._serving.let_go()
        if not self._epochs.ended(self._epochs.cursor):  # as a stream may have
            self._serving.start(self._epochs.place(self._epochs.cursor))
        return self._iterate(self._generation)

    def __len__(self) -> int:
        if self.batches_per_epoch is not None:
            return self.batches_per_epoch
        fresh = self._feed.epoch_batches()
        if fresh is None:
            raise TypeError(
                "the dataset has no length because its epochs do not end: give batches_per_epoch="
                + ("" if self._feed.continues else ', or coverage="once"')
            )
        if not self._replays.fixed:
            raise TypeError(
                f"the dataset has no exact length because replays={self._replays.least, self._replays.most} "
                f"depends on time: write replays as one int, or give batches_per_epoch="
            )
        return fresh * self._replays.least

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next ``iter()`` serves.

        Parameters
        ----------
        epoch : int
            0 or more. An epoch always has the same samples for the same seed.
        """
        check_count("epoch", epoch, 0)
        if self._begun or self._epochs.cursor.epoch != epoch:
            if self._feed.continues:
                self._epochs.cursor = self._epochs.after(self._epochs.cursor)
                self._epochs.cursor.epoch = int(epoch)
            else:
                self._epochs.cursor = Cursor(epoch=int(epoch))
            self._begun = False
            self._generation += 1
        self._epoch_was_set = True

    def numpy(self) -> NumpyBatches:
        """The same batches as NumPy arrays; strings become an array of ``str``.

        Returns
        -------
        iterable of dict[str, numpy.ndarray]
            Arrays have the shape of the tensors, with which they share memory (they are copied from a GPU).
            Its ``len()`` is that of the dataset, and each ``iter()`` begins an epoch of it.

        Examples
        --------
        >>> import numpy as np, xarray as xr, superbatch as sb
        >>> field = xr.DataArray(np.zeros((100, 32), "f4"), dims=("time", "x"))
        >>> source = sb.ArchiveSource({"field": sb.Window(field, time=4)}, samples=64)
        >>> with sb.SuperbatchDataset(source, batch_size=8, batches_per_epoch=2) as dataset:
        ...     [type(batch["field"]).__name__ for batch in dataset.numpy()]
        ['ndarray', 'ndarray']
        """
        return NumpyBatches(self)

    def _iterate(self, generation: int) -> Iterator[Batch]:
        cursor, meter = self._epochs.cursor, self._meter
        self._check_current(generation, cursor)
        # Loaders that iterate over nothing (checks, wrappers) do not use an epoch up.
        self._begun = True
        bar = Progress(self._length_or_none(), cursor.epoch) if self.progress else None
        epochs, serving = self._epochs, self._serving
        meter.enter()
        try:
            while not epochs.ended(cursor):
                place = epochs.place(cursor)
                filled = serving.get(place)
                if filled.last:
                    epochs.over_after(place[1])
                for number in itertools.count(cursor.number):
                    if not filled.samples or not self._another(number, place, cursor, filled):
                        break
                    for batch in self._pass(number, filled, cursor):
                        if bar is not None:
                            bar.update(meter.snapshot(history=False), *serving.ahead())
                        yield batch
                        if generation != self._generation:
                            self._check_current(generation, cursor)
                            return
                    if epochs.ended(cursor):
                        break
                at_hand = epochs.place(cursor) == place
                if at_hand and not epochs.ended(cursor):
                    cursor.superbatch, cursor.number, cursor.batch = place[1] + 1, 0, 0
                if not at_hand or not self._feed.continues:
                    serving.let_go()
            serving.check_served(cursor.served)
            self._epochs.cursor, self._begun = epochs.after(cursor), False
            if not epochs.ended(self._epochs.cursor):
                serving.seek(epochs.place(self._epochs.cursor))
        except GeneratorExit:
            raise
        except BaseException:
            # Loaders are stopped already where one has failed. What is served next starts afresh.
            if generation == self._generation:
                serving.stop()
            raise
        finally:
            meter.leave()
            if generation == self._generation and not self._feed.continues:
                serving.let_go()
            if bar is not None:
                bar.close()

    def _check_current(self, generation: int, cursor: Cursor) -> None:
        """An iteration that was ended from outside, before its epoch was over, must not just stop."""
        if generation == self._generation or self._epochs.ended(cursor):
            return
        if self._closed:
            raise SuperbatchError("the dataset was closed while it was iterated over")
        raise SuperbatchError(
            "this iteration was ended by another iter(), set_epoch() or load_state_dict() on the same "
            "dataset: iterate over it once at a time, or make a dataset for each iteration"
        )

    def _pass(self, number: int, filled: Filled, cursor: Cursor) -> Iterator[Batch]:
        """The batches of one pass that have not been served yet; the cursor moves before each is given out."""
        epoch, superbatch = self._epochs.place(cursor)
        samples = filled.samples
        # A plan draws samples in random order; a stream brings them in the order of production.
        in_order = not self.shuffle or (number == 0 and not self._feed.continues)
        rows = replay.order(
            samples if filled.sizes is None else len(filled.sizes),
            number,
            shuffle=self.shuffle,
            seed=self.seed,
            epoch=epoch,
            superbatch=superbatch,
            rank=self._ranks.rank,
            shuffled=not self._feed.continues,
        )
        if filled.sizes is None:
            sizes = self._feed.batch_sizes(epoch, superbatch, samples)
        else:
            rows, sizes = replay.whole(filled.sizes, rows)
        serving, meter, limit = self._serving, self._meter, self.batches_per_epoch
        server, finish = serving.server, self._finish
        order = None if in_order else server.order(rows)
        last_pass = self._replays.fixed and number + 1 >= self._replays.least
        begin = time.monotonic()
        first, at = cursor.batch, sum(sizes[: cursor.batch])
        for batch in range(first, len(sizes)):
            end = at + sizes[batch]
            start, at = at, end
            gone = end == start  # a batch of a stream that is not there any more
            if not gone:
                out = server.run(start, end) if order is None else server.rows(order[start:end])
            if batch + 1 < len(sizes):
                cursor.batch = batch + 1
            elif last_pass:
                cursor.superbatch, cursor.number, cursor.batch = superbatch + 1, 0, 0
            else:
                cursor.number, cursor.batch = number + 1, 0
            if gone:
                continue
            cursor.served += 1
            self._epochs.extra += number >= self._replays.least
            meter.batch(sizes[batch], fresh=number == 0)
            yield out if finish.nothing else finish(out)
            if limit is not None and cursor.served >= limit:
                break
            now = time.monotonic()
            if now - self._looked > _LOOK_UP:
                serving.poll()
                self._looked = time.monotonic()
                # A pipe is emptied here, which takes its time.
                if self._looked - now > _NOTICEABLE:
                    meter.stalled(now, self._looked)
        now = time.monotonic()
        meter.passed(number == 0, begin, now)
        if first == 0:
            self._serve_seconds = now - begin

    def _another(self, number: int, place: Place, cursor: Cursor, filled: Filled) -> bool:
        """Whether pass ``number`` is made; all ranks answer alike."""
        replays = self._replays
        if number < replays.least or (number == cursor.number and cursor.batch > 0):
            return True
        if replays.fixed:
            return False
        wanted = number < replays.limit(filled.load_seconds, self._serve_seconds)
        following = self._epochs.following(place)
        missing = (
            following is not None
            and following[0] == place[0]
            and not self._serving.ready(following)
        )
        assert self._agreement is not None
        # All ranks have to want it: with one that does not, none replays.
        return self._agreement.all(wanted and missing)

    def _length_or_none(self) -> int | None:
        try:
            return len(self)
        except TypeError:
            return None

    # -- what was counted ------------------------------------------------------------------------

    def stats(self) -> Stats:
        """What has been counted since the dataset was made, as it is now."""
        return self._meter.snapshot()

    def quality(self, *, batches: int | None = None, correlation: float | None = None) -> Quality:
        """How close the order of samples is to a true shuffle; computed on the plan, no data is read.

        Parameters
        ----------
        batches : int, optional
            How many to look at; those of four superbatches by default.
        correlation : float, optional
            Within a chunk sequence, from 0 to 1, for the effective batch size.

        Returns
        -------
        Quality
            ``print`` it, ``plot(path)`` it. Replays are counted as they were served so far, or at the
            least where nothing was served yet.

        Raises
        ------
        TypeError
            The source has no plan to compute on.
        """
        stats = self.stats()
        served = 1 + stats.replay_ratio if stats.fresh else self._replays.least
        return measure(
            self._feed,
            batches=batches,
            epoch=self._epochs.cursor.epoch,
            replays=served,
            correlation=correlation,
        )

    # -- resuming --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What has been served, for resuming; what was loaded ahead does not enter.

        Returns
        -------
        dict
            Plain numbers and strings, the same for any number of loaders.
        """
        return {
            "version": _STATE_VERSION,
            "cursor": asdict(self._epochs.cursor),
            "begun": self._begun,
            "replays": [self._replays.least, self._replays.most],
            "feed": dict(self._feed.fingerprint()),
            "source": plain(self._serving.state),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken: the next ``iter()`` serves the batches that were left.

        Exact where the number of replays is fixed (an int, or ``deterministic=True``), with any number of
        loaders. In a range of replays the remaining passes depend on time, as they did before.

        Raises
        ------
        ArgumentError
            The state is of another version, or of a dataset with other samples.
        """
        whole = isinstance(state, Mapping) and state.get("version") == _STATE_VERSION
        if not whole or not {"feed", "cursor"} <= state.keys():
            raise ArgumentError(
                f"this is no state of version {_STATE_VERSION} that a SuperbatchDataset has given: {state!r:.80}"
            )
        mine = dict(self._feed.fingerprint())
        cursor = Cursor(**state["cursor"])
        made = state.get("source")
        between = made is None or cursor.superbatch > made[0]
        wrong = [k for k in mine if state["feed"].get(k) != mine[k]]
        if wrong and not (between and set(wrong) <= set(self._feed.may_change)):
            name = wrong[0]
            later = (
                "; take it between two rounds" if set(wrong) <= set(self._feed.may_change) else ""
            )
            raise ArgumentError(
                f"the state is of a dataset with {name}={state['feed'].get(name)!r}, this one has "
                f"{name}={mine[name]!r}: make the dataset as it was, or begin a new epoch with set_epoch(){later}"
            )
        self._epochs.cursor = cursor
        if self._feed.continues:
            # The loaders stand somewhere else in the stream.
            self._serving.stop()
            self._epochs.over_after(None)
            self._serving.state = made
        # An epoch that was begun goes on; one that was not begins.
        self._begun = self._epoch_was_set = False
        self._generation += 1

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the loaders and give the shared memory back. Closing twice does nothing."""
        self._closed = True
        self._generation += 1
        self._serving.stop()
        self._receiver.close()

    def __getstate__(self) -> dict[str, Any]:
        raise SuperbatchError(
            "a SuperbatchDataset cannot be sent to another process: make it where it is used, "
            "and write DataLoader(dataset, batch_size=None, num_workers=0)"
        )

    @property
    def _loaders(self) -> Loaders | None:
        return self._serving.loaders
