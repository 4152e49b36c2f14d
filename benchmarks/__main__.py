"""Run the benchmarks: ``python -m benchmarks w1``, ``python -m benchmarks --peers``."""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine, race, report, stores, stream
from benchmarks.workloads import WORKLOADS


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, report; 0 when every workload gave a result."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["stream"]:
        return stream.main(arguments[1:])
    options = _parser().parse_args(arguments)
    names = options.names or list(WORKLOADS)
    for name in names:
        if name not in WORKLOADS:
            print(f"no workload named {name!r}: choose from {', '.join(WORKLOADS)}")
            return 2
    settings = _settings(options)
    began = time.perf_counter()
    run: dict[str, Any] = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": settings.quick,
        "machine": machine.describe(),
        "versions": machine.versions(),
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(settings).items()},
        "workloads": [],
    }
    failed = 0
    for name in names:
        try:
            run["workloads"].append(race.run(name, settings, _say))
        except Exception as error:
            if options.debug:
                raise
            failed += 1
            print(f"{name} failed: {error}", file=sys.stderr)
        run["seconds"] = round(time.perf_counter() - began, 1)
        if options.json:  # after each workload, so that an interrupted run is not lost
            report.write_json(run, options.json)
    print(report.text(run))
    if options.plot and not report.plot(run, options.plot):
        _say("no figure: no workload gave rates to draw")
    print(f"{run['seconds']:.0f} s in all", file=sys.stderr)
    return 1 if failed else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _settings(options: argparse.Namespace) -> race.Settings:
    quick = options.quick
    return race.Settings(
        repeat=options.repeat or (2 if quick else 5),
        seconds=0.5 if quick else 1.25,
        stall_seconds=5.0 if quick else 60.0,
        quick=quick,
        with_peers=options.peers,
        cores=machine.use_cores(options.cores),
        length=0.1 if quick else 1.0,
        cache=options.cache,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Fresh samples a second of superbatch and of its peers, "
        "against the time that decoding alone takes.",
        epilog="examples: python -m benchmarks w1 w4 --peers --json results.json --plot results.png; "
        "python -m benchmarks stream",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"workloads: {', '.join(WORKLOADS)}; default: all"
    )
    parser.add_argument("--peers", action="store_true", help="measure the other loaders as well")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the archives, short turns; results are marked and are not for comparison",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all repeats and settings")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="write a figure")
    parser.add_argument("--repeat", type=int, help="rounds; default 5, with --quick 2")
    parser.add_argument("--cores", type=int, default=2, help="cores that everybody shares")
    parser.add_argument(
        "--cache",
        type=Path,
        help=f"where stores are kept, about 6 GB; default {stores.cache_dir()}",
    )
    parser.add_argument("--debug", action="store_true", help="stop at the first failure")
    return parser


if __name__ == "__main__":
    sys.exit(main())
