"""Keras 3 trains on a dataset, over archives and over what grows; arrays in place of tensors."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import superbatch as sb
from superbatch.errors import ArgumentError
from superbatch.source import Filled

os.environ["KERAS_BACKEND"] = "torch"
keras = pytest.importorskip("keras")

from superbatch.keras import SuperbatchPyDataset, one_hot  # noqa: E402

STEP = 4  # samples in a superbatch of the stream


def archive(count=64, **options):
    """Sample ``i`` is x = i and y = i % 3; each is served once."""
    at = np.arange(count)
    x = xr.DataArray(at.astype("f4")[:, None], dims=("i", "k"))
    label = xr.DataArray((at % 3).astype("i8")[:, None], dims=("i", "k"))
    source = sb.ArchiveSource(
        {"x": sb.Window(x, i=1), "label": sb.Window(label, i=1)},
        samples=16,
        sequences=2,
        coverage="once",
        transform=flat,
    )
    return sb.SuperbatchDataset(source, batch_size=8, replays=1, timeout=60, **options)


def flat(sample):
    return {"x": sample["x"].reshape(1), "label": sample["label"].reshape(())}


class Seen(keras.layers.Layer):
    """Passes its input on, and keeps what it was called with."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def call(self, x):
        if isinstance(x, torch.Tensor) and x.device.type != "meta":
            self.kept.append(x.detach().cpu().numpy()[:, 0].copy())
        return x


def model(seen, outputs=3, loss="categorical_crossentropy", activation="softmax"):
    net = keras.Sequential([seen, keras.layers.Dense(outputs, activation=activation)])
    net.compile(optimizer="sgd", loss=loss, run_eagerly=True)
    return net


def test_the_backend_is_the_one_that_is_tested():
    assert keras.backend.backend() == "torch"


def test_numpy_gives_the_same_batches():
    with archive(seed=5) as dataset, archive(seed=5) as other:
        arrays = dataset.numpy()
        assert len(arrays) == len(dataset) == 8
        for mine, theirs in zip(arrays, other, strict=True):
            assert set(mine) == set(theirs)
            for name, values in mine.items():
                assert type(values) is np.ndarray
                np.testing.assert_array_equal(values, theirs[name].numpy())


def test_numpy_begins_an_epoch_each_time():
    with archive() as dataset:
        first, second = ([batch["x"][:, 0] for batch in dataset.numpy()] for _ in range(2))
        assert not np.array_equal(first[0], second[0])
        for epoch in (first, second):
            np.testing.assert_array_equal(np.sort(np.concatenate(epoch)), np.arange(64))


def test_fit_trains_on_each_sample_once_an_epoch():
    """Also on the batch that Keras has looked at to build the model."""
    seen = Seen()
    with archive() as dataset:
        data = SuperbatchPyDataset(dataset, x="x", y="label", num_classes=3)
        assert data.num_batches == 8
        history = model(seen).fit(data, epochs=3, verbose=0)
    assert len(history.history["loss"]) == 3
    assert len(seen.kept) == 24
    for epoch in range(3):
        served = np.concatenate(seen.kept[8 * epoch : 8 * epoch + 8])
        np.testing.assert_array_equal(np.sort(served), np.arange(64))


def test_targets_belong_to_their_inputs():
    with archive() as dataset:
        data = SuperbatchPyDataset(dataset, x="x", y="label", sample_weight="label", num_classes=3)
        for _ in range(8):
            x, y, weight = data[0]
            np.testing.assert_array_equal(y.argmax(1), x[:, 0] % 3)
            np.testing.assert_array_equal(weight, x[:, 0] % 3)
            assert y.dtype == np.float32
            assert (y.sum(1) == 1).all()


def test_several_inputs_go_by_their_names():
    with archive() as dataset:
        (x,) = SuperbatchPyDataset(dataset, x=["x", "label"])[0]
        np.testing.assert_array_equal(x["label"], x["x"][:, 0] % 3)


def test_endless_epochs_need_a_number_of_steps():
    field = xr.DataArray(np.arange(64, dtype="f4"), dims="i")
    source = sb.ArchiveSource({"x": sb.Window(field, i=1)}, samples=16, sequences=2)
    seen = Seen()
    with sb.SuperbatchDataset(source, batch_size=8, timeout=60) as dataset:
        data = SuperbatchPyDataset(dataset, x="x", y="x")
        assert data.num_batches is None
        model(seen, 1, "mse", None).fit(data, steps_per_epoch=5, epochs=2, verbose=0)
    assert len(seen.kept) == 10


# -- what grows -----------------------------------------------------------------------------------


@dataclass
class Stream:
    """Superbatch ``k`` holds the samples from ``STEP * k`` on; it is there once the file ``k`` is. Does not end."""

    folder: str
    samples = STEP
    drops = False
    continues = True
    labels = scales = {}  # noqa: RUF012
    fields = {"x": ((1,), np.dtype("f4"))}  # noqa: RUF012

    def bind(self, settings):
        return self

    def open(self):
        return self

    def start(self, epoch, index, slot):
        return Part(self, index, slot)

    def superbatches(self, epoch):
        return None

    def batches(self, epoch, index):
        return 1

    def batch_sizes(self, epoch, index, samples):
        return [samples]

    def epoch_batches(self):
        return None

    def fingerprint(self):
        return {}

    def resume(self, index, state):
        pass

    def descriptors(self):
        return []

    def idle(self):
        return None

    def stuck(self):
        return None

    def close(self):
        pass


@dataclass
class Part:
    stream: Stream
    index: int
    slot: dict

    def finish(self):
        end = time.monotonic() + 30
        if (Path(self.stream.folder) / f"{self.index}.error").exists():
            raise OSError(f"superbatch {self.index} is broken")
        while not (Path(self.stream.folder) / str(self.index)).exists():
            if time.monotonic() > end:
                raise TimeoutError(f"file {self.index} does not come")
            time.sleep(0.01)
        self.slot["x"][:, 0] = np.arange(STEP) + STEP * self.index
        return Filled(STEP)


def release(folder, *parts):
    for part in parts:
        (folder / str(part)).touch()


def arrived(data, samples):
    """Wait until so many samples are there, those that joined before included."""
    collected = data._collected
    end = time.monotonic() + 30
    while len(collected._order) + collected._waiting < samples:
        assert time.monotonic() < end
        collected.look()  # waits for nothing


def test_samples_grow_at_the_end_of_each_epoch(tmp_path):
    seen = Seen()
    with sb.SuperbatchDataset(Stream(str(tmp_path)), 4, replays=1, timeout=60) as dataset:
        data = SuperbatchPyDataset(dataset, x="x", y="x", grow=True, batch_size=2)
        release(tmp_path, 0)
        net = model(seen, 1, "mse", None)

        def grow(epoch, logs=None):
            if epoch < 3:
                release(tmp_path, epoch + 1)
                arrived(data, STEP * (epoch + 2))

        for epoch in range(4):
            # what comes while an epoch runs joins at its end
            during = keras.callbacks.LambdaCallback(
                on_train_batch_begin=lambda batch, logs=None, e=epoch: grow(e)
            )
            net.fit(data, epochs=epoch + 1, initial_epoch=epoch, verbose=0, callbacks=[during])
    at = 0
    for epoch in range(4):
        count = STEP * (epoch + 1)
        served = np.concatenate(seen.kept[at : at + count // 2])
        np.testing.assert_array_equal(np.sort(served), np.arange(count))
        at += count // 2
    assert at == len(seen.kept)


def test_within_one_fit_later_epochs_draw_from_all(tmp_path):
    seen = Seen()
    release(tmp_path, 0)
    with sb.SuperbatchDataset(Stream(str(tmp_path)), 4, replays=1, timeout=60) as dataset:
        data = SuperbatchPyDataset(dataset, x="x", y="x", grow=True, batch_size=2)

        def grow(epoch, logs=None):
            release(tmp_path, 1)
            arrived(data, 2 * STEP)

        during = keras.callbacks.LambdaCallback(on_epoch_begin=grow)
        model(seen, 1, "mse", None).fit(data, epochs=12, verbose=0, callbacks=[during])
    assert len(seen.kept) == 12 * 2
    assert set(np.concatenate(seen.kept[:2])) == {0, 1, 2, 3}
    for epoch in range(1, 12):
        assert len(np.unique(np.concatenate(seen.kept[2 * epoch : 2 * epoch + 2]))) == STEP
    assert set(np.concatenate(seen.kept)) == set(range(2 * STEP))


def test_beyond_the_capacity_the_oldest_go(tmp_path):
    # Unshuffled: the first pass over what arrives is in the order of arrival.
    with sb.SuperbatchDataset(
        Stream(str(tmp_path)), 4, replays=1, shuffle=False, timeout=60
    ) as dataset:
        data = SuperbatchPyDataset(dataset, x="x", grow=True, batch_size=3, capacity=6)
        release(tmp_path, 0)
        assert data.num_batches == 1
        for part in (1, 2):
            release(tmp_path, part)
            arrived(data, min(6, STEP * part) + STEP)
            data.on_epoch_end()
        assert data.num_batches == 2
        served = np.concatenate([data[0][0][:, 0] for _ in range(2)])
        np.testing.assert_array_equal(np.sort(served), np.arange(6, 12))


def test_no_first_batch_is_an_error_in_time(tmp_path):
    with sb.SuperbatchDataset(Stream(str(tmp_path)), 4, replays=1, timeout=0.5) as dataset:
        data = SuperbatchPyDataset(dataset, x="x", grow=True)
        with pytest.raises(sb.SuperbatchError, match=r"within timeout=0\.5"):
            data.num_batches  # noqa: B018


def test_what_the_stream_raises_reaches_the_training_loop(tmp_path):
    release(tmp_path, 0)
    (tmp_path / "1.error").touch()
    with sb.SuperbatchDataset(Stream(str(tmp_path)), 4, replays=1, timeout=60) as dataset:
        data = SuperbatchPyDataset(dataset, x="x", y="x", grow=True)
        net = model(Seen(), 1, "mse", None)
        with pytest.raises(OSError, match="superbatch 1 is broken"):
            net.fit(data, epochs=100_000, verbose=0)


def test_after_the_end_of_a_stream_training_goes_on_with_all_that_came():
    from superbatch import stream

    seen = Seen()
    with stream.Server() as server, stream.Producer(server.address, "sim") as producer:
        for number in range(3):
            producer.put(x=np.arange(4 * number, 4 * number + 4, dtype="f4")[:, None])
        source = stream.StreamSource(server.address, "sim", stream.Rounds(1))
        with sb.SuperbatchDataset(source, 4, replays=1, timeout=30) as dataset:
            data = SuperbatchPyDataset(dataset, x="x", y="x", grow=True, batch_size=4)
            net = model(seen, 1, "mse", None)
            net.fit(data, epochs=1, verbose=0)
            producer.close()
            arrived(data, 12)
            data.on_epoch_end()
            before = len(seen.kept)
            net.fit(data, epochs=3, verbose=0)
            assert data._collected._over
    after = seen.kept[before:]
    assert len(after) == 3 * 3
    for epoch in range(3):
        served = np.sort(np.concatenate(after[3 * epoch : 3 * epoch + 3]))
        np.testing.assert_array_equal(served, np.arange(12))


def test_a_stream_that_ends_with_less_than_a_batch_says_so():
    from superbatch import stream

    with stream.Server() as server:
        with stream.Producer(server.address, "sim") as producer:
            producer.put(x=np.zeros((3, 1), "f4"))
        source = stream.StreamSource(server.address, "sim", stream.Rounds(1))
        with sb.SuperbatchDataset(source, 3, replays=1, timeout=30) as dataset:
            data = SuperbatchPyDataset(dataset, x="x", grow=True, batch_size=8)
            with pytest.raises(
                sb.SuperbatchError, match="ended with 3 samples, less than batch_size=8"
            ):
                data.num_batches  # noqa: B018


def test_what_grows_is_not_replayed_by_the_dataset(tmp_path):
    with (
        sb.SuperbatchDataset(Stream(str(tmp_path)), 4, timeout=60) as dataset,
        pytest.raises(ArgumentError, match="write replays=1"),
    ):
        SuperbatchPyDataset(dataset, x="x", grow=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": "z"}, "no field 'z': choose one of x, label"),
        ({"x": "x", "sample_weight": "x"}, "write y= too"),
        ({"x": "x", "num_classes": 3}, "is of one field"),
        ({"x": "x", "y": "label", "num_classes": 1}, "num_classes=1"),
        ({"x": "x", "capacity": 3}, "grow=True"),
        ({"x": "x", "grow": True, "capacity": 3}, "capacity=3"),
    ],
)
def test_what_cannot_work(options, words):
    with archive() as dataset, pytest.raises(ArgumentError, match=words) as raised:
        SuperbatchPyDataset(dataset, **options)
    assert "\n" not in str(raised.value)


def test_one_hot():
    labels = np.array([[2], [0], [1]])
    np.testing.assert_array_equal(one_hot(labels, 4), np.eye(4, dtype="f4")[[2, 0, 1]])
    with pytest.raises(ArgumentError, match="a label is 4, outside of 0 to 3"):
        one_hot(np.array([0, 4]), 4)
    with pytest.raises(ArgumentError, match="float32 of shape"):
        one_hot(np.zeros((2, 3), "f4"), 4)
