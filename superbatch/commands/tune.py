"""``superbatch tune``: search the settings for a store."""

from __future__ import annotations

import argparse
import json

EXAMPLES = """\
examples:
  superbatch tune archive.zarr --array temperature --window time=12,y=64,x=64 --step 20
      The settings at which a training step of 20 ms waits least; the Python to paste.

  superbatch tune archive.zarr --window time=2,y=128,x=128 --memory 4GB --seconds 120 --plot tune.png
      Two minutes of search within 4 GB of memory, and a picture of what was tried.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``superbatch tune`` to a parser."""
    from superbatch.commands import arguments

    arguments.add_arguments(parser, seconds=60.0)
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="that settings may take, such as 8GB; default: 70%% of what is free",
    )
    parser.add_argument("--plot", metavar="PNG", help="draw what was tried")


def run(arguments: argparse.Namespace) -> int:
    """Search; return the exit status."""
    from superbatch.commands.arguments import source_of, step_of
    from superbatch.tuning import tune

    found = tune(
        source_of(arguments),
        step_of(arguments) if arguments.step else None,
        batch_size=arguments.batch_size,
        seconds=arguments.seconds,
        memory=arguments.memory,
        loaders=arguments.loaders,
        threads=arguments.threads,
        progress=not arguments.json,
    )
    if arguments.plot:
        found.plot(arguments.plot)
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else f"\n{found}")
    return 0
