"""Batches for ``model.fit`` of Keras 3, on any of its backends.

Keras fixes the number of steps in an epoch when ``fit`` is called. So over a stream that is collected
(:class:`Collected`), epochs of one ``fit`` have equally many steps, drawn from ever more samples; the
next ``fit`` begins with the larger number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superbatch.arguments import check_count
from superbatch.arrays import Arrays, to_array
from superbatch.dataset import SuperbatchDataset
from superbatch.errors import ArgumentError, SuperbatchError, shown

try:
    import keras
except ImportError as missing:
    raise SuperbatchError(
        "superbatch.keras needs Keras 3: run  pip install 'superbatch[keras]'"
    ) from missing

Names = str | Sequence[str]


class SuperbatchPyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """Feeds ``model.fit``, ``evaluate`` and ``predict`` from a :class:`superbatch.SuperbatchDataset`.

    Batches are given out in the dataset's own order, whatever index Keras asks for; ``shuffle=`` of
    ``fit`` has no effect. Where epochs of the dataset do not end, write ``steps_per_epoch=`` in ``fit``.

    Parameters
    ----------
    dataset : SuperbatchDataset
        Closed by whoever made it.
    x : str or sequence of str
        The field that is the input; several become a dict of arrays by name.
    y, sample_weight : str or sequence of str, optional
        The fields of the targets and of the weights.
    num_classes : int, optional
        One-hot: integer targets of shape ``(n,)`` or ``(n, 1)`` become float32 ``(n, num_classes)``.
    grow : bool
        Keep all samples that arrive: those that came during an epoch join at its end, and each epoch draws
        ``len`` batches, without replacement, from all that are there. For streams, and with
        ``replays=1``; do not iterate over the dataset elsewhere. For the first batch its ``timeout`` holds.
    batch_size : int, optional
        With ``grow``: samples in a batch; that of the dataset by default.
    capacity : int, optional
        With ``grow``: samples that are kept; beyond, the oldest go. Without it memory grows with the stream.
    seed : int
        With ``grow``: of the order of samples.

    Raises
    ------
    ArgumentError
        A field that the dataset does not have, or arguments that cannot go together.

    Examples
    --------
    >>> data = SuperbatchPyDataset(dataset, x="image", y="label", num_classes=10)  # doctest: +SKIP
    >>> model.fit(data, epochs=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        dataset: SuperbatchDataset,
        x: Names,
        y: Names | None = None,
        sample_weight: Names | None = None,
        *,
        num_classes: int | None = None,
        grow: bool = False,
        batch_size: int | None = None,
        capacity: int | None = None,
        seed: int = 0,
    ) -> None:
        # One thread: batches come from one iterator, and are made by loaders anyway.
        super().__init__(workers=1, use_multiprocessing=False)
        if sample_weight is not None and y is None:
            raise ArgumentError(
                f"sample_weight={shown(sample_weight)} weights no target: write y= too"
            )
        if num_classes is not None:
            check_count("num_classes", num_classes, 2)
            if not isinstance(y, str):
                raise ArgumentError(
                    f"num_classes={num_classes} is of one field, y={shown(y)} is not: write y='label', say"
                )
        self._parts = [names for names in (x, y, sample_weight) if names is not None]
        fields = dataset._feed.fields
        for name in (
            n for names in self._parts for n in ([names] if isinstance(names, str) else names)
        ):
            if name not in fields:
                raise ArgumentError(
                    f"the dataset has no field {name!r}: choose one of {', '.join(fields)}"
                )
        self._num_classes = num_classes
        self._dataset = dataset
        self._iterator: Iterator[Arrays] | None = None
        self._given = 0
        self._first: Arrays | None = None
        self._collected: Collected | None = None
        if grow:
            self._collected = Collected(dataset, batch_size, capacity, seed)
        elif batch_size is not None or capacity is not None:
            raise ArgumentError(
                "batch_size and capacity are of grow=True: write them there, or in SuperbatchDataset"
            )

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; None where it does not end."""
        if self._collected is not None:
            return self._collected.batches()
        try:
            return len(self._dataset)
        except TypeError:
            return None

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """The next batch: ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``."""
        del index  # batches come one after the other
        batch = self._collected.draw() if self._collected is not None else self._next()
        parts = [self._part(batch, names) for names in self._parts]
        if self._num_classes is not None:
            parts[1] = one_hot(parts[1], self._num_classes)
        return tuple(parts)

    def on_epoch_begin(self) -> None:
        """Keras looks at one batch to build a model, and drops it: it is given out again."""
        if self._given == 1:
            self._given = 0

    def on_epoch_end(self) -> None:
        """Take in the samples that have arrived since."""
        if self._collected is not None:
            self._collected.join()

    def _next(self) -> Arrays:
        if self._given == 0 and self._first is not None:
            batch, self._first, self._given = self._first, None, 2
            return batch
        if self._iterator is None:
            self._iterator = iter(self._dataset.numpy())
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._iterator = iter(self._dataset.numpy())
            try:
                batch = next(self._iterator)
            except StopIteration:
                raise SuperbatchError(
                    f"the dataset ended after {self._given} batches: write fewer epochs or steps_per_epoch, "
                    f"or grow=True to train on for longer than the stream lasts"
                ) from None
        self._given += 1
        self._first = batch if self._given == 1 else None
        return batch

    def _part(self, batch: Mapping[str, npt.NDArray[Any]], names: Names) -> Any:
        if not isinstance(names, str):
            return {name: batch[name] for name in names}
        return batch[names]


class Collected:
    """Samples of a dataset that are kept as they arrive, and shuffled anew for each epoch.

    What has arrived is looked for whenever a batch is drawn; only the first batch is waited for.

    Parameters
    ----------
    dataset : SuperbatchDataset
    batch_size, capacity, seed
        As of :class:`SuperbatchPyDataset`.
    """

    def __init__(
        self, dataset: SuperbatchDataset, batch_size: int | None, capacity: int | None, seed: int
    ) -> None:
        size = dataset.batch_size if batch_size is None else batch_size
        if size is None:
            raise ArgumentError(
                "grow=True needs a batch size, the dataset has none: write batch_size=32, say"
            )
        check_count("batch_size", size, 1)
        if capacity is not None:
            check_count("capacity", capacity, size)
        if (dataset._replays.least, dataset._replays.most) != (1, 1):
            raise ArgumentError(
                "grow=True keeps the samples itself: write replays=1 in SuperbatchDataset"
            )
        self._dataset, self._size, self._capacity = dataset, size, capacity
        self._rng = np.random.default_rng(seed)
        self._samples: Arrays = {}
        self._arrived: list[Arrays] = []
        self._waiting = 0  # samples in what has arrived
        self._order = np.arange(0)
        self._at = 0
        self._iterator = iter(dataset)  # loaders begin
        self._over = False

    def batches(self) -> int:
        """Whole batches among the samples that have joined; waits for the first."""
        while len(self._order) < self._size:
            if self._over:
                raise SuperbatchError(
                    f"the stream ended with {len(self._order)} samples, less than batch_size={self._size}: "
                    f"write a smaller batch_size"
                )
            self._take()
            self.join()
        return len(self._order) // self._size

    def join(self) -> None:
        """Let the samples that have arrived join, and shuffle."""
        self.look()
        if self._arrived:
            parts = [self._samples] * bool(self._samples) + self._arrived
            keep = slice(None if self._capacity is None else -self._capacity, None)
            self._samples = {
                name: np.concatenate([part[name] for part in parts])[keep] for name in parts[0]
            }
            self._arrived, self._waiting = [], 0
        self._shuffle()

    def look(self) -> None:
        """Take what is there, without waiting; no more than may be kept."""
        while not self._over and self._there():
            if self._capacity is not None and self._waiting >= self._capacity:
                return
            self._take()

    def draw(self) -> Arrays:
        """The next batch of the order; begins a new one where no whole batch is left."""
        self.look()
        if self._at + self._size > len(self._order):
            self.batches()
            self._shuffle()
        rows = self._order[self._at : self._at + self._size]
        self._at += self._size
        return {name: values[rows] for name, values in self._samples.items()}

    def _shuffle(self) -> None:
        count = len(next(iter(self._samples.values()))) if self._samples else 0
        self._order, self._at = self._rng.permutation(count), 0

    def _there(self) -> bool:
        """Whether the dataset has a batch, or its end, without waiting."""
        dataset = self._dataset
        place = dataset._epochs.place(dataset._epochs.cursor)
        current = dataset._serving._current
        return (
            dataset._epochs.ended(dataset._epochs.cursor)
            or (current is not None and current.place == place)
            or dataset._serving.ready(place)
        )

    def _take(self) -> None:
        batch = next(self._iterator, None)
        if batch is None:  # an epoch of the dataset, or the stream
            self._iterator = iter(self._dataset)
            self._over = self._dataset._epochs.ended(self._dataset._epochs.cursor)
            return
        arrays = {name: to_array(values) for name, values in batch.items()}
        self._arrived.append(arrays)
        self._waiting += len(next(iter(arrays.values())))


def one_hot(labels: npt.NDArray[Any], num_classes: int) -> npt.NDArray[np.float32]:
    """Integer labels of shape ``(n,)`` or ``(n, 1)`` as float32 of shape ``(n, num_classes)``.

    Raises
    ------
    ArgumentError
        Labels of another shape or dtype, or outside ``[0, num_classes)``.

    Examples
    --------
    >>> one_hot(np.array([2, 0]), 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or flat.dtype.kind not in "iub":
        raise ArgumentError(
            f"num_classes={num_classes} needs integer labels of shape (n,) or (n, 1), these are "
            f"{labels.dtype} of shape {labels.shape}: leave num_classes out"
        )
    flat = flat.astype(np.int64)
    wrong = flat[(flat < 0) | (flat >= num_classes)]
    if len(wrong):
        raise ArgumentError(
            f"a label is {wrong[0]}, outside of 0 to {num_classes - 1}: raise num_classes={num_classes}"
        )
    encoded = np.zeros((len(flat), num_classes), np.float32)
    encoded[np.arange(len(flat)), flat] = 1
    return encoded
