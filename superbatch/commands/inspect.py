"""``superbatch inspect``: what loading from a store costs, before training begins."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

EXAMPLES = """\
examples:
  superbatch inspect archive.zarr --array temperature --window time=12,y=64,x=64
      Chunks, codec, what one sample costs, decoding speed, the settings and what to expect of them.

  superbatch inspect archive.zarr --window time=2,y=128,x=128 --memory 4GB --plot windows.png --json
      The settings that fit into 4 GB; a picture of how windows lie in chunks; everything as JSON.

  superbatch inspect archive.zarr --window time=12,y=64,x=64 --sequences 64 --plot-shuffle shuffle.png
      How well twice the sequences mix; a picture of it beside a true shuffle.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``superbatch inspect`` to a parser."""
    from superbatch.commands import arguments

    arguments.add_store(parser)
    arguments.add_settings(parser)
    parser.add_argument("--memory", metavar="SIZE", help="fit the settings into it, such as 8GB")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--plot", metavar="PNG", help="draw how windows lie in chunks")
    parser.add_argument("--plot-shuffle", metavar="PNG", help="draw how well samples are shuffled")


def run(arguments: argparse.Namespace) -> int:
    """Inspect a store; return the exit status."""
    from superbatch.demo.own import open_array, parse_window
    from superbatch.inspection import inspect
    from superbatch.inspection.plot import plot

    array, _ = open_array(arguments.store, arguments.array)
    found, source = inspect(
        array,
        parse_window(arguments.window),
        batch_size=arguments.batch_size,
        samples=arguments.samples,
        sequences=arguments.sequences,
        chunks_per_sequence=arguments.chunks,
        turnover=arguments.turnover,
        memory=arguments.memory,
    )
    if arguments.plot:
        plot(source, Path(arguments.plot))
    if arguments.plot_shuffle:
        found.quality.plot(arguments.plot_shuffle)
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else found)
    return 0
