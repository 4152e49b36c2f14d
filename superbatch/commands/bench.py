"""``superbatch bench``: how fast the settings given load from a store."""

from __future__ import annotations

import argparse
import json

EXAMPLES = """\
examples:
  superbatch bench archive.zarr --array temperature --window time=12,y=64,x=64
      Fresh samples a second, with a loop that takes batches as fast as they come.

  superbatch bench archive.zarr --window time=2,y=128,x=128 --step 20 --replays 1,4 --loaders 2
      How long a training step of 20 ms waits, with two loaders and up to four replays.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``superbatch bench`` to a parser."""
    from superbatch.commands import arguments

    arguments.add_arguments(parser, seconds=10.0)
    parser.add_argument(
        "--replays",
        default="1",
        metavar="N[,M]",
        help="passes over a superbatch: a number, or the fewest and the most; default: 1",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure; return the exit status."""
    from superbatch.arguments import usable_cores
    from superbatch.commands.arguments import source_of, step_of
    from superbatch.errors import SuperbatchError
    from superbatch.memory import available
    from superbatch.tuning.trial import Choice, Trials, headspace

    source, step = source_of(arguments), step_of(arguments)
    choice = Choice(
        samples=source.samples,
        sequences=source.sequences,
        chunks_per_sequence=source.chunks_per_sequence,
        turnover=source.turnover,
        loaders=arguments.loaders,
        threads=arguments.threads or max(1, usable_cores() // max(1, arguments.loaders)),
        replays=_replays(arguments.replays),
    )
    trials = Trials(source, step, arguments.batch_size, arguments.seconds, available(), {})
    trial = trials(choice, "as given")
    if not trial.tried:
        raise SuperbatchError(trial.note)
    free = None
    if arguments.step:
        with trials.dataset(source, choice) as dataset:
            free = headspace(dataset, step, 1.0)
    numbers = {
        "fresh_samples_per_second": trial.fresh_per_second,
        "batches_per_second": trial.iterations_per_second,
        "batches_per_second_if_loading_were_free": free,
        "stall_fraction": trial.stall_fraction,
        "replayed_per_fresh": trial.replay_ratio,
        "memory_bytes": trial.memory_bytes,
        "shuffle_score": trial.score,
    }
    if arguments.json:
        print(json.dumps(numbers, indent=2))
        return 0
    print(f"fresh samples a second            {trial.fresh_per_second:,.0f}")
    print(f"batches a second                  {trial.iterations_per_second:,.0f}")
    if free is not None:
        print(f"  if loading were free            {free:,.0f}")
    print(f"time spent waiting                {trial.stall_fraction:.1%}")
    print(f"replayed for each fresh sample    {trial.replay_ratio:.2f}")
    print(f"memory, predicted                 {trial.memory_bytes / 1e9:.2f} GB")
    print(f"shuffle, 1 is a true one          {trial.score:.2f}")
    return 0


def _replays(text: str) -> int | tuple[int, int]:
    from superbatch.errors import ArgumentError

    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    raise ArgumentError(
        f"--replays {text} is no number of passes: write --replays 1, or --replays 1,4"
    )
