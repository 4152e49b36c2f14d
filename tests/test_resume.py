"""A run that goes on from a state serves what the uninterrupted run would have served."""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
import pytest
import torch

import superbatch as sb
from superbatch.errors import ArgumentError
from tests.fields import corners, field, write_plain

WHOLE = field((120, 3))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("resume") / "field.zarr"
    return write_plain(path, WHOLE, chunks=(4, 3), dimension_names=("time", "x"))


@pytest.fixture
def dataset(stored):
    """Makes datasets and closes them: superbatches of 3 batches, two passes over each."""
    made = []

    def make(coverage="once", batch_size=8, **options):
        sampling = {"samples": 24, "sequences": 4} | options.pop("sampling", {})
        source = sb.ArchiveSource(
            {"field": sb.Window(stored, time=5)}, coverage=coverage, **sampling
        )
        options = {"replays": 2, "seed": 3, "timeout": 60} | options
        made.append(sb.SuperbatchDataset(source, batch_size, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def served(batches) -> list[list[int]]:
    return [corners(batch["field"], WHOLE)[:, 0].tolist() for batch in batches]


OPTIONS = {
    # 116 windows: superbatches of 24, the last of 20, so the last batch of each pass is short.
    "once": {"coverage": "once"},
    "random": {"coverage": "random", "batches_per_epoch": 20},
    "random, turnover": {
        "coverage": "random",
        "batches_per_epoch": 20,
        "sampling": {"turnover": 0.5},
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_step_of_an_epoch_resumes_exactly(dataset, name):
    options = OPTIONS[name]
    one = dataset(**options)
    states, first = [json.dumps(one.state_dict())], []
    for batch in one:
        first.append(batch)
        states.append(json.dumps(one.state_dict()))  # as a checkpoint on disk would keep it
    first = served(first)
    second = served(one)
    assert len(first) == len(second) == (30 if name == "once" else 20)
    # Another dataset, with another number of loaders, goes on from each of them, in any order. It has
    # loaded ahead for something else each time.
    other = dataset(**options, loaders=2)
    steps = np.random.default_rng(0).permutation(len(states)).tolist()
    for step in steps:
        other.load_state_dict(json.loads(states[step]))
        rest = served(other)
        # After the last batch of an epoch, what follows is the next epoch.
        assert rest == (first[step:] or second), f"at step {step}"
    # And the epoch after one that was resumed is the epoch after.
    other.load_state_dict(json.loads(states[7]))
    assert served(other) == first[7:]
    assert served(other) == second


def test_a_fresh_process_worth_of_state_is_plain_and_small(dataset):
    one = dataset()
    next(iter(one))
    state = one.state_dict()
    assert len(json.dumps(state)) < 2000
    # What was loaded ahead does not enter, nor does the number of loaders.
    again = dataset(loaders=2)
    next(iter(again))
    assert again.state_dict() == state


def test_a_state_is_of_what_was_served_not_of_what_was_loaded(dataset):
    one = dataset()
    before = one.state_dict()
    batches = iter(one)
    assert one.state_dict() == before
    next(batches)
    after = one.state_dict()
    assert after["cursor"] != before["cursor"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_size": 4}, r"batch_size=8, this one has batch_size=4"),
        ({"seed": 4}, r"seed=3, this one has seed=4"),
        ({"rank": 0, "world_size": 2}, r"world_size=1, this one has world_size=2"),
        ({"sampling": {"samples": 48}}, r"samples=24, this one has samples=48"),
        ({"sampling": {"sequences": 2}}, r"sequences=4, this one has sequences=2"),
        ({"sampling": {"chunks_per_sequence": 1}}, r"this one has"),
        ({"shuffle": False}, r"shuffle=True, this one has shuffle=False"),
        ({"coverage": "random"}, r"coverage='once', this one has coverage='random'"),
    ],
)
def test_a_state_of_another_dataset_is_refused_in_one_sentence(dataset, change, sentence):
    state = dataset().state_dict()
    other = dataset(**change)
    with pytest.raises(ArgumentError, match=sentence) as caught:
        other.load_state_dict(state)
    assert "\n" not in str(caught.value)
    assert "set_epoch" in str(caught.value)


@pytest.mark.parametrize("state", [{}, {"version": 0}, {"version": 1}, [1], "state", None])
def test_what_is_no_state_is_refused(dataset, state):
    with pytest.raises(ArgumentError, match="no state of version"):
        dataset().load_state_dict(state)


def test_set_epoch_keeps_or_discards_what_is_left_of_a_resumed_epoch(dataset):
    one = dataset()
    first = served(one)
    second = served(one)
    one.set_epoch(0)
    batches = iter(one)
    for _ in range(13):
        next(batches)
    state = one.state_dict()
    # The usual loop says each epoch, the one that it resumes too.
    one.load_state_dict(state)
    one.set_epoch(0)
    assert served(one) == first[13:]
    one.set_epoch(1)
    assert served(one) == second
    one.load_state_dict(state)
    one.set_epoch(1)
    assert served(one) == second
    # A state at the very end of epoch 0, and a loop that says so: nothing is left of it.
    one.set_epoch(0)
    batches = iter(one)
    for _ in range(30):
        next(batches)
    one.load_state_dict(one.state_dict())
    one.set_epoch(0)
    assert served(one) == []
    one.set_epoch(1)
    assert served(one) == second


# -- torchdata ----------------------------------------------------------------------------------


def test_a_stateful_data_loader_resumes_exactly(dataset):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader(one):
        return stateful.StatefulDataLoader(one, batch_size=None, num_workers=0)

    one = loader(dataset())
    states, first = [one.state_dict()], []
    for batch in one:
        first.append(batch)
        states.append(one.state_dict())
    states.append(one.state_dict())  # after the end, where StopIteration was seen
    first = served(first)
    second = served(one)
    assert len(first) == 30
    other = loader(dataset(loaders=2))
    for step in (0, 1, 4, 13, 29, 30, 31):
        other.load_state_dict(states[step])
        rest = served(other)
        assert rest == (first[step:] or second), f"at step {step}"
    other.load_state_dict(states[5])
    assert served(other) == first[5:]
    assert served(other) == second


# -- Lightning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("through", ["dataset", "stateful"])
def test_a_lightning_checkpoint_in_mid_epoch_resumes_exactly(dataset, tmp_path, through):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning = pytest.importorskip("lightning.pytorch")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []

        def training_step(self, batch, number):
            self.seen += served([batch])
            return self.layer(batch["field"][:, 0, :1].float()).square().mean() * 0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            one = dataset()
            if through == "dataset":
                return one
            return stateful.StatefulDataLoader(one, batch_size=None, num_workers=0)

    def fit(resume=None, **options):
        net = Net()
        saved = lightning.callbacks.ModelCheckpoint(
            tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1
        )
        trainer = lightning.Trainer(
            accelerator="cpu",
            default_root_dir=tmp_path,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[] if resume else [saved],
            **options,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(net, datamodule=Data(), ckpt_path=resume)
        return net.seen

    everything = fit(max_epochs=2)
    assert len(everything) == 60
    assert everything[:30] != everything[30:]
    # In the middle of a pass of epoch 0; at its end; after the first batch of epoch 1.
    for step in (7, 30, 31):
        rest = fit(tmp_path / f"step={step}.ckpt", max_epochs=2)
        assert rest == everything[step:], f"at step {step}"


def test_the_next_epoch_follows_in_the_middle_of_everything(dataset):
    # Superbatches of the next epoch are loaded before this one has ended: they are not lost.
    one = dataset("random", batches_per_epoch=7)
    epochs = [served(one) for _ in range(4)]
    for number in reversed(range(4)):
        one.set_epoch(number)
        assert served(itertools.islice(one, 7)) == epochs[number]
