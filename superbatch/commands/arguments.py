"""What ``superbatch tune`` and ``superbatch bench`` are both told: a store, windows, a training step."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from superbatch.errors import ArgumentError

if TYPE_CHECKING:
    from superbatch.archive.source import ArchiveSource


def add_arguments(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add them to a parser.

    Parameters
    ----------
    parser : ArgumentParser
    seconds : float
        The default of ``--seconds``.
    """
    parser.add_argument("store", metavar="STORE", help="a Zarr store: a path or a URL")
    parser.add_argument("--array", metavar="NAME", help="the array in it (default: the only one)")
    parser.add_argument(
        "--window",
        metavar="DIM=N,...",
        required=True,
        help="the length of a sample along each dimension, such as time=12,y=64,x=64",
    )
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--step",
        type=float,
        default=0.0,
        metavar="MS",
        help="milliseconds that a training step takes on a GPU, with the cores left free; default: 0, "
        "batches are taken as fast as they come",
    )
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="how long, about; default: %(default)g"
    )
    parser.add_argument("--samples", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--sequences", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--chunks", type=int, default=3, metavar="N", help="per sequence; default: %(default)s"
    )
    parser.add_argument(
        "--turnover", type=float, default=1.0, help="share of sequences replaced; default: 1"
    )
    parser.add_argument("--loaders", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="of each loader; default: all cores, shared")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def source_of(arguments: argparse.Namespace) -> ArchiveSource:
    """The source that the arguments describe."""
    import superbatch as sb
    from superbatch.demo.own import open_array, parse_window

    array, _ = open_array(arguments.store, arguments.array)
    extents: dict[str, Any] = dict(parse_window(arguments.window))
    return sb.ArchiveSource(
        {"array": sb.Window(array, **extents)},
        samples=arguments.samples,
        sequences=arguments.sequences,
        chunks_per_sequence=arguments.chunks,
        turnover=arguments.turnover,
    )


def step_of(arguments: argparse.Namespace) -> Callable[[Any], None]:
    """A training step that takes as long as the arguments say."""
    seconds = arguments.step / 1000
    if not 0 <= seconds < 3600:
        raise ArgumentError(
            f"--step {arguments.step:g} is no time of a step: write milliseconds, such as --step 20"
        )

    def step(batch: Any) -> None:
        if seconds:
            time.sleep(seconds)

    return step
