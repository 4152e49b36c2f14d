"""``superbatch produce``: a simulation that puts what it computes on a server, for trying streams out."""

from __future__ import annotations

import argparse
import signal
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from superbatch.errors import ArgumentError

if TYPE_CHECKING:
    from superbatch.stream.retention import Retention

EXAMPLES = """\
examples:
  superbatch produce
      Starts a server, says where it is, and puts batches of two simulations on it until Ctrl-C.

  superbatch produce --address localhost:6379 --processes 8 --batches 500 --retention bounded:16
      Eight simulations on a server that runs already, each of 500 batches; they wait for the trainer.
"""

# Steps of the simulation from one sample to the next. A sample shows two fields that are so many samples apart, so that
# it can be seen where the heat moves; what is to be predicted is as far ahead.
STEPS_BETWEEN, FIELDS_AHEAD = 4, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``superbatch produce`` to a parser."""
    parser.add_argument(
        "--address",
        help="of a server that runs: host:port, a socket's path, or a URL; default: start one",
    )
    parser.add_argument(
        "--name",
        default="heat",
        help="producers are called NAME0, NAME1, ...; default: %(default)s",
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="simulations; default: %(default)s"
    )
    parser.add_argument("--batches", type=int, help="of each simulation; default: until Ctrl-C")
    parser.add_argument("--samples", type=int, default=8, help="in a batch; default: %(default)s")
    parser.add_argument(
        "--size", type=int, default=64, help="points along an edge; default: %(default)s"
    )
    parser.add_argument(
        "--rate",
        type=float,
        help="batches a second of each, at most; default: as fast as they come",
    )
    parser.add_argument(
        "--retention",
        default="bounded:64",
        help="append, overwrite, ring:K, lru:BYTES, or bounded:K, which waits for the trainer; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> int:
    """Simulate; return the exit status."""
    from multiprocessing import get_context

    from superbatch import stream
    from superbatch.arguments import check_count, check_seconds

    for name, least in (("processes", 1), ("samples", 1), ("size", 4)):
        check_count(f"--{name}", getattr(arguments, name), least)
    if arguments.batches is not None:
        check_count("--batches", arguments.batches, 1)
    if arguments.rate is not None:
        check_seconds("--rate", arguments.rate)
    kept = retention(arguments.retention)
    context = get_context("spawn")
    with ExitStack() as stack:
        server = stack.enter_context(stream.Server(arguments.address))
        names = [f"{arguments.name}{number}" for number in range(arguments.processes)]
        print(f"server     {server.address}", flush=True)
        print(f"producers  {', '.join(names)}", flush=True)
        print(
            f'train with stream.StreamSource("{server.address}", "{arguments.name}*", ...)',
            flush=True,
        )
        stopped = context.Event()
        numbers = arguments.batches, arguments.samples, arguments.size, arguments.rate
        processes = [
            context.Process(
                target=simulate, args=(server.address, name, seed, kept, stopped, *numbers)
            )
            for seed, name in enumerate(names)
        ]
        for process in processes:
            process.start()
        interrupted = False
        try:
            for process in processes:
                process.join()
        except KeyboardInterrupt:  # the simulations come to an end, and say so on the server
            interrupted = True
            stopped.set()
            for process in processes:
                process.join(30)
        failed = [p for p in processes if p.exitcode != 0]
        for process in failed:
            process.kill()
        if failed:
            print(f"{len(failed)} of {len(processes)} simulations failed", flush=True)
            return 1
        if arguments.address is None and not interrupted:
            print("all simulations have ended; the server stays until Ctrl-C", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def retention(text: str) -> Retention:
    """What ``--retention`` says.

    Examples
    --------
    >>> retention("ring:8").keep
    8
    """
    from superbatch import stream

    kind, _, number = text.partition(":")
    try:
        if kind in ("append", "overwrite") and not number:
            return stream.Append() if kind == "append" else stream.Overwrite()
        if kind in ("ring", "bounded"):
            return (stream.Ring if kind == "ring" else stream.Bounded)(int(number))
        if kind == "lru":
            return stream.LRU(number)
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
    raise ArgumentError(
        f"--retention {text} is none: write append, overwrite, ring:8, lru:2GB or bounded:8"
    )


def simulate(
    address: str,
    name: str,
    seed: int,
    kept: Retention,
    stopped: Any,
    batches: int | None,
    samples: int,
    size: int,
    rate: float | None,
) -> None:
    """One simulation: what it is, and what becomes of it, batch by batch; runs in a process of its own."""
    import numpy as np

    from superbatch import stream
    from superbatch.demo.heat import Plate
    from superbatch.errors import SuperbatchError

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    plate = Plate(size, seed)
    history = [plate.advance(STEPS_BETWEEN) for _ in range(2 * FIELDS_AHEAD + samples)]
    begin, number = time.monotonic(), 0
    with stream.Producer(address, name, kept, timeout=2.0) as producer:
        while not stopped.is_set() and (batches is None or number < batches):
            if rate is not None and stopped.wait(
                max(0.0, begin + number / rate - time.monotonic())
            ):
                break
            fields = np.stack(history)
            present = slice(FIELDS_AHEAD, FIELDS_AHEAD + samples)
            batch = {
                "data": np.stack([fields[:samples], fields[present]], axis=1),
                "target": fields[2 * FIELDS_AHEAD :],
            }
            while not stopped.is_set():
                try:
                    producer.put(**batch)
                    break
                except SuperbatchError as error:
                    if "the trainer took no batch" not in str(error):
                        raise
            number += 1
            history = history[samples:] + [plate.advance(STEPS_BETWEEN) for _ in range(samples)]
