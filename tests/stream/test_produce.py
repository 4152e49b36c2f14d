"""superbatch produce: simulations that put their fields on a server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import superbatch as sb
from superbatch import stream
from superbatch.cli import main
from superbatch.demo.heat import Plate
from superbatch.stream.reader import Reader
from tests.processes import ROOT, all_gone, descendants, lines, until

COMMAND = [sys.executable, "-m", "superbatch.cli", "produce"]


def start(*arguments: str, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*COMMAND, *arguments], env=environment, **options)


def test_heat_spreads_as_the_equation_says() -> None:
    """Without heaters, a wave that the grid can hold dies down by the factor of the discrete equation."""
    size, steps = 33, 50
    plate = Plate(size, heaters=0)
    wave = np.sin(np.pi * np.arange(size) / (size - 1))
    plate.temperature[:] = np.outer(wave, wave)
    expected = (1 - 8 * Plate.DIFFUSION * np.sin(np.pi / (size - 1) / 2) ** 2) ** steps
    np.testing.assert_allclose(plate.advance(steps), expected * np.outer(wave, wave), atol=1e-5)
    heated = Plate(size, seed=3)
    assert heated.advance(200).max() > 0.1
    assert np.isfinite(heated.advance(3000)).all()
    assert not np.array_equal(heated.temperature, Plate(size, seed=4).advance(3200))


def test_a_trainer_sees_each_step_of_each_simulation() -> None:
    with stream.Server() as server:
        batches, samples = 6, 4
        process = start(
            *("--address", server.address, "--batches", str(batches), "--samples", str(samples)),
            *("--size", "16", "--retention", "bounded:2"),
        )
        source = stream.StreamSource(
            server.address, "heat*", stream.Rounds(2), expect=2, timeout=30
        )
        served = []
        with sb.SuperbatchDataset(source, batch_size=None, replays=1, timeout=60) as dataset:
            for batch in dataset:
                served += zip(batch["data"].numpy(), batch["target"].numpy(), strict=True)
        assert process.wait(20) == 0
    expected = []
    for seed in range(2):
        plate = Plate(16, seed)
        fields = [plate.advance(4) for _ in range(batches * samples + 10)]
        expected += [
            (np.stack([fields[n], fields[n + 5]]), fields[n + 10]) for n in range(batches * samples)
        ]

    def known(pairs):
        return sorted((x.tobytes(), y.tobytes()) for x, y in pairs)

    assert known(served) == known(expected)


def test_ctrl_c_ends_the_streams_and_the_server() -> None:
    process = start("--size", "16", "--retention", "ring:4", stdout=subprocess.PIPE, text=True)
    try:
        told = lines(process, 30)
        address = next(told).split()[1]
        assert next(told).split() == ["producers", "heat0,", "heat1"]
        with contextlib.closing(Reader(address)) as reader:
            assert until(lambda: len(reader.entries({}, "heat*", 1.0)) > 0, 30)
            children = descendants(process.pid)
            # the server ends with the command: what the streams say is read before that
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        assert all_gone(children, 10)
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_marks_the_end_on_a_server_that_stays() -> None:
    with stream.Server() as server, contextlib.closing(Reader(server.address)) as reader:
        process = start("--address", server.address, "--size", "16", "--retention", "bounded:2")
        # both wait for a trainer that is not there
        assert until(lambda: len(reader.producers("heat*")) == 2, 30)
        assert until(lambda: server_batches(server) == {"heat0": 2, "heat1": 2}, 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert all(status.closed for status in reader.producers("heat*").values())


def server_batches(server) -> dict[str, int]:
    """What each producer has put."""
    with contextlib.closing(Reader(server.address)) as reader:
        entries = reader.entries({}, "heat*", 0.1)
    names = {entry.producer for entry in entries}
    return {name: sum(e.producer == name and not e.last for e in entries) for name in names}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--retention", "some"], "--retention some is none: write append"),
        (["--retention", "ring:many"], "--retention ring:many is none"),
        (["--processes", "0"], "--processes=0"),
        (["--rate", "-1"], "--rate=-1"),
        (["--address", "localhost:9"], "no server answers at redis://localhost:9"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(arguments, message, capsys) -> None:
    assert main(["produce", *arguments]) == 1
    assert message in capsys.readouterr().err
