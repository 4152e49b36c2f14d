"""``superbatch demo``: train a small network from a Zarr store, and show what loading cost.

``climate``
    the store that the demo makes where it is given none: 240 years of temperature, twice
``own``
    a store that the user points at
``task``
    what is trained on: windows of an array, a part of it held out
``network``
    the small convolutional network, and the loss of guessing without one
``training``
    the training loop, with its progress bar
``plain``
    the same number of samples through a plain ``torch.utils.data.DataLoader``
``report``
    the table and the picture at the end
``streaming``, ``heat``
    training on simulations that are running, with ``--stream``
"""

from __future__ import annotations

import argparse

EXAMPLES = """\
examples:
  superbatch demo
      Takes two 240-year simulations of the temperature over North America, predicts each year from
      the ten before it, and compares the loss with persistence. Needs no network; under a minute.

  superbatch demo --store archive.zarr --array temperature --window time=12,y=64,x=64
      The same on an array of yours: the last step of each window is predicted from those before.
      Where the window has no time dimension of two steps or more, an autoencoder is trained.

  superbatch demo --stream
      Starts a Redis or Valkey server and two simulations, and trains on them while they run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``superbatch demo`` to a parser."""
    parser.add_argument(
        "--dir",
        metavar="FOLDER",
        help="where the store and the picture go (default: superbatch in the user's cache folder)",
    )
    parser.add_argument(
        "--steps",
        type=_count,
        default=600,
        metavar="N",
        help="training steps (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=20.0,
        metavar="S",
        help="training ends after this long, whatever --steps says (default: %(default)g)",
    )
    parser.add_argument(
        "--batch-size",
        type=_count,
        metavar="N",
        help="samples in a batch (default: 32, or fewer where samples are large)",
    )
    parser.add_argument(
        "--compare",
        type=_count,
        default=8192,
        metavar="N",
        help="samples that each loader reads in the comparison at the end (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of all that is random (default: 0)"
    )
    live = parser.add_argument_group("simulations that are running")
    live.add_argument(
        "--stream", action="store_true", help="train on simulations instead, while they run"
    )
    live.add_argument(
        "--buffer",
        choices=("rounds", "reservoir"),
        default="rounds",
        help="batches in rounds, replayed; or samples out of a reservoir (default: %(default)s)",
    )
    live.add_argument(
        "--processes",
        type=_count,
        default=2,
        metavar="N",
        help="simulations (default: %(default)s)",
    )
    own = parser.add_argument_group("your own data")
    own.add_argument("--store", metavar="PATH", help="a Zarr store: a path or a URL")
    own.add_argument("--array", metavar="NAME", help="the array in it (default: the only one)")
    own.add_argument(
        "--window",
        metavar="DIM=N,...",
        help="the length of a sample along each dimension, such as time=12,y=64,x=64; "
        "a dimension that is not named is taken whole",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run ``superbatch demo``; return its exit status."""
    # imported here: torch takes two seconds, and --help has no use for it
    from superbatch.demo.main import demo

    return demo(arguments)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write seconds, more than 0")
    return seconds
