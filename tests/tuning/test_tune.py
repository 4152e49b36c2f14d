"""sb.tune, sb.headspace, and the commands, on real stores with real loaders."""

from __future__ import annotations

import ast
import json
import threading
import time

import numpy as np
import pytest
import zarr

import superbatch as sb
from superbatch.cli import main
from superbatch.tuning.trial import Choice, Trials


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    path = tmp_path_factory.mktemp("tuning") / "a.zarr"
    array = zarr.create_array(
        path, shape=(240, 24, 24), chunks=(12, 24, 24), dtype="f4", dimension_names=("t", "y", "x")
    )
    array[:] = np.random.default_rng(0).normal(size=array.shape).astype("f4")
    return array


def make(array, **settings) -> sb.ArchiveSource:
    settings = {"samples": 128, "sequences": 8} | settings
    return sb.ArchiveSource({"a": sb.Window(array, t=3, y=8, x=8)}, **settings)


def test_headspace_is_the_rate_of_the_step_alone(array) -> None:
    seen = set()

    def step(batch):
        seen.add(batch["a"].data_ptr())
        time.sleep(0.02)

    with sb.SuperbatchDataset(make(array), batch_size=16) as dataset:
        rate = sb.headspace(dataset, step, seconds=0.5)
    assert 10 < rate <= 50
    assert len(seen) == 1  # nothing was loaded, or cut, in between


def test_a_search_finds_something_no_worse_and_tells_it_as_python(array, tmp_path) -> None:
    found = sb.tune(
        make(array), lambda batch: time.sleep(0.005), batch_size=16, seconds=6, memory="2GB"
    )
    first, *others = found.trials
    assert first.changed == "as given"
    assert first.tried
    assert others
    assert found.best in found.trials
    assert found.best.stall_fraction <= first.stall_fraction + 0.02
    assert all(0 < trial.memory_bytes <= 2e9 for trial in found.trials if trial.tried)
    assert all(0 <= trial.stall_fraction <= 1 for trial in found.trials)
    # a step of 5 ms allows 200 batches a second, and no trial gave more
    assert 50 < found.headspace <= 200
    assert all(trial.iterations_per_second <= 200 for trial in found.trials)

    calls = [node for node in ast.walk(ast.parse(found.python())) if isinstance(node, ast.Call)]
    told = {k.arg: ast.literal_eval(k.value) for call in calls for k in call.keywords}
    best = vars(found.choice)
    assert told == best | {"batch_size": 16}
    for text in (found.explain(), *(trial.changed for trial in found.trials)):
        assert text in str(found)
    found.plot(tmp_path / "tune.png")
    assert (tmp_path / "tune.png").stat().st_size > 5000
    assert json.loads(json.dumps(found.as_dict()))["best"]["note"] == ""


def test_counting_begins_with_full_superbatches(array) -> None:
    """A trial counts as much as passes between two marks: whole superbatches, each so often replayed."""
    source = make(array)
    trials = Trials(source, lambda batch: None, 16, 1.0, 10**10, {})
    trial = trials(Choice(128, 8, 3, 1.0, 1, 1, 3), "as given")
    assert trial.tried
    assert trial.replay_ratio == pytest.approx(2.0)  # three passes: two replayed for each fresh
    assert trial.iterations_per_second == pytest.approx(trial.fresh_per_second * 3 / 16)


def test_memory_that_is_too_small_for_the_settings_makes_them_smaller(array) -> None:
    source = make(array, samples=4096, sequences=16)
    whole = source.describe(1, 1)["memory_bytes"]["total"]
    found = sb.tune(
        source, batch_size=16, seconds=2, memory=int(whole * 0.99), cores=1, fixed=["turnover"]
    )
    assert found.trials[0].choice.samples < 4096
    # nothing was trained
    assert found.headspace is None
    assert "give it your training step" in found.explain()
    assert all(t.memory_bytes <= whole * 0.99 for t in found.trials if t.tried)


def test_loaders_are_gone_after_it(array) -> None:
    before = threading.active_count()
    sb.tune(make(array), batch_size=16, seconds=1)
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 200}, "batch_size=200 is larger than the superbatch of samples=128"),
        ({"seconds": -1}, "seconds=-1"),
        ({"memory": "lots"}, "'lots' is not a number of bytes"),
        ({"memory": "1MB"}, "too little for one sequence"),
        ({"cores": 0}, "cores=0"),
        ({"fixed": ["workers"]}, "fixed=['workers'] are no settings"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(array, arguments, message) -> None:
    with pytest.raises(sb.SuperbatchError) as caught:
        sb.tune(make(array), **arguments)
    assert message in str(caught.value)


def test_a_stream_is_refused() -> None:
    with pytest.raises(sb.SuperbatchError, match="as fast as its producers"):
        sb.tune(object())  # type: ignore[arg-type]


def test_an_error_of_the_training_step_is_the_users(array) -> None:
    class Broken(Exception):
        pass

    def step(batch):
        raise Broken

    with pytest.raises(Broken):
        sb.tune(make(array), step, batch_size=16, seconds=2)


def test_the_commands(array, capsys, tmp_path) -> None:
    store = str(array.store.root)
    common = [store, "--window", "t=3,y=8,x=8", "--batch-size", "16", "--samples", "128"]
    common += ["--sequences", "8"]
    picture = tmp_path / "p.png"
    tune = [*common, "--seconds", "2", "--step", "2", "--memory", "2GB", "--plot", str(picture)]
    assert main(["tune", *tune]) == 0
    told = capsys.readouterr().out
    assert "dataset = sb.SuperbatchDataset(" in told
    assert "as given" in told
    assert picture.stat().st_size > 5000
    assert main(["tune", *common, "--seconds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"][0]["changed"] == "as given"

    assert main(["bench", *common, "--seconds", "1", "--replays", "1,4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fresh_samples_per_second"] > 0
    assert main(["bench", *common, "--seconds", "1"]) == 0
    assert "fresh samples a second" in capsys.readouterr().out
    assert main(["bench", *common, "--replays", "many"]) == 1
    assert "--replays many is no number of passes" in capsys.readouterr().err
    assert main(["tune", *common, "--step", "-3"]) == 1
    assert "--step -3 is no time of a step" in capsys.readouterr().err
