"""What ``superbatch inspect``, ``tune`` and ``bench`` are told: a store, windows, settings, a training step."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from superbatch.errors import ArgumentError

if TYPE_CHECKING:
    from superbatch.archive.source import ArchiveSource


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the store, and the windows that are cut from it."""
    parser.add_argument("store", metavar="STORE", help="a Zarr store: a path or a URL")
    parser.add_argument("--array", metavar="NAME", help="the array in it (default: the only one)")
    parser.add_argument(
        "--window",
        metavar="DIM=N,...",
        required=True,
        help="the length of a sample along each dimension, such as time=12,y=64,x=64; "
        "a dimension that is not named is taken whole",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add batches, and the settings of superbatches."""
    for name, default, what in (
        ("--batch-size", 32, "samples in a batch"),
        ("--samples", 4096, "samples in a superbatch: more of them share what is decoded for it"),
        (
            "--sequences",
            32,
            "runs of neighbouring chunks that a superbatch is drawn from: more mix better, and take "
            "more memory",
        ),
        ("--chunks", 3, "neighbouring chunks in a sequence, along the first dimension"),
    ):
        parser.add_argument(
            name, type=int, default=default, metavar="N", help=f"{what}; default: %(default)s"
        )
    parser.add_argument(
        "--turnover",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of the sequences, how many are replaced from one superbatch to the next: 0.25 decodes a "
        "quarter, and samples stay four times as long with the same neighbours; default: 1, all",
    )


def add_arguments(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add what a run is told besides.

    Parameters
    ----------
    parser : ArgumentParser
    seconds : float
        The default of ``--seconds``.
    """
    add_store(parser)
    add_settings(parser)
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
    parser.add_argument(
        "--loaders",
        type=int,
        default=1,
        metavar="N",
        help="processes that load, each a superbatch at a time; default: %(default)s",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="of each loader; default: all cores, shared"
    )
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
