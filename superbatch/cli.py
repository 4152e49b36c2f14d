"""The command line: one table of subcommands, each a module of its own.

A subcommand's module offers ``EXAMPLES``, ``add_arguments(parser)`` and ``run(arguments)``. It is
imported only when its command is asked for, and imports what is slow (torch, xarray) only in
``run``, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from superbatch import __version__
from superbatch.errors import SuperbatchError

# name: (module, what it does)
COMMANDS = {
    "demo": ("superbatch.demo", "train a small network from a Zarr store; show what loading cost"),
    "inspect": (
        "superbatch.commands.inspect",
        "look at a store: chunks, speed, settings, shuffle quality",
    ),
    "tune": ("superbatch.commands.tune", "search the settings at which training waits least"),
    "produce": (
        "superbatch.commands.produce",
        "put a small simulation on a server, batch by batch, to train on while it runs",
    ),
    "bench": (
        "superbatch.commands.bench",
        "measure how fast a store is loaded with given settings",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the program's name; those of the process where none are given.

    Returns
    -------
    int
        The exit status: 0 when all went well, 1 when the command failed, 130 when it was
        interrupted. Arguments that argparse refuses end the process with status 2.

    Examples
    --------
    >>> main(["demo", "--steps", "20"])  # doctest: +SKIP
    0
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser(argv).parse_args(argv)
    try:
        return int(importlib.import_module(COMMANDS[arguments.command][0]).run(arguments))
    except SuperbatchError as error:
        print(f"superbatch {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"superbatch {arguments.command}: interrupted", file=sys.stderr)
        return 130


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="superbatch",
        description="Keeps a training loop fed from Zarr archives that do not fit in memory.",
        epilog="Each command has its own help, with examples: superbatch demo --help",
    )
    parser.add_argument("--version", action="version", version=f"superbatch {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in argv:
            module = importlib.import_module(module_name)
            module.add_arguments(command)
            command.epilog = module.EXAMPLES
    return parser


if __name__ == "__main__":
    sys.exit(main())
