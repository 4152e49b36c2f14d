"""One workload from beginning to end: open everybody, check their values, take turns, keep all repeats."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import machine, peers, stores, workloads
from benchmarks.contest import Contestant, ContestantError
from benchmarks.floor import DecodeFloor, keep_freed_memory
from benchmarks.measure import SuperbatchEntrant
from benchmarks.workloads import Workload

Say = Callable[[str], None]

LENGTHS = {"1 x": 1, "100 x": 100, "2,000,000 chunks": 20_000}
"""Archives that the workload L compares, as multiples of W1's length."""


@dataclass(frozen=True)
class Settings:
    """How a run is made.

    Attributes
    ----------
    repeat : int
        Rounds; in each, every contestant has a turn.
    seconds : float
        Least time of a turn, the way into the steady state not counted.
    stall_seconds : float
        Length of the loop that stall is measured on.
    length, space
        Scale of the workloads, see `benchmarks.workloads`.
    """

    repeat: int = 5
    seconds: float = 1.25
    stall_seconds: float = 60.0
    quick: bool = False
    with_peers: bool = False
    cores: int = 2
    length: float = 1.0
    space: int = 1
    cache: Path | None = None


class FloorEntrant:
    """The decode floor in its contestant's process."""

    def __init__(self, workload: Workload, store: Path, cores: int) -> None:
        keep_freed_memory()
        self.floor = DecodeFloor(workload, store, cores)

    def turn(self, what: str, **settings: Any) -> Any:
        return asdict(self.floor.measure(settings["seconds"]))

    def close(self) -> None:
        self.floor.close()


def run(name: str, settings: Settings, say: Say) -> dict[str, Any]:
    """Measure one workload; the result holds every repeat and is ready for JSON."""
    if name == "l":
        return _run_length(settings, say)
    workload = workloads.WORKLOADS[name](settings.length, settings.space)
    say(f"{name}: {workload.title}")
    store = stores.make(workload, settings.cache, settings.cores)
    result = _about(workload)
    field = Field(workload, store, settings, say)
    try:
        field.enter_all()
        for number in range(settings.repeat):
            field.round(number, turnover=name == "w1")
        result.update(field.results)
        if name == "w1":
            result["details"] = _details(field, settings, say)
    finally:
        field.close()
    return result


def _about(workload: Workload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "title": workload.title,
        "note": workload.note,
        "scale": dict(workload.scale),
        "arrays": [
            {
                "name": a.name,
                "shape": a.shape,
                "chunks": a.chunks,
                "shards": a.shards,
                "dtype": a.dtype,
                "window": a.window_shape,
            }
            for a in workload.arrays
        ],
        "batch_size": workload.batch_size,
        "samples": workload.samples,
        "sequences": workload.sequences,
        "sample_bytes": workload.sample_bytes,
        "superbatch_decoded_bytes": workload.superbatch_decoded_bytes,
    }


class Field:
    """Everybody who takes part in one workload, and what they did."""

    def __init__(self, workload: Workload, store: Path, settings: Settings, say: Say) -> None:
        self.workload, self.store, self.settings, self.say = workload, store, settings, say
        self.running: dict[str, Contestant] = {}
        self.results: dict[str, Any] = {"floor": [], "superbatch": [], "turnover": [], "peers": {}}

    def enter_all(self) -> None:
        args = (self.workload, self.store, self.settings.cores)
        self.running["floor"] = Contestant("floor", FloorEntrant, *args)
        self.running["superbatch"] = Contestant("superbatch", SuperbatchEntrant, *args)
        self.results["checked"] = self.running["superbatch"].turn("check")
        if self.settings.with_peers:
            for name in peers.PEERS:
                self._enter_peer(name)

    def _enter_peer(self, name: str) -> None:
        """Open a peer and check a batch of it; whoever cannot take part is noted with the reason."""
        try:
            peer = peers.load(name)
        except ImportError as error:
            self.results["peers"][name] = {"name": name, "reason": f"not installed: {error}"}
            return
        about = {
            "name": peer.NAME,
            "access": peer.ACCESS,
            "tuning": peer.TUNING,
            "source": peer.SOURCE,
            "repeats": [],
        }
        self.results["peers"][name] = about
        if reason := peer.cannot(self.workload):
            about["reason"] = reason
            return
        self.say(f"  opening {peer.NAME}")
        try:
            contestant = Contestant(
                peer.NAME,
                peers.PeerEntrant,
                name,
                self.workload,
                self.store,
                self.settings.cores,
                timeout=120,
            )
            about["checked"] = contestant.turn("check")
            about.update(contestant.turn("about"))
        except ContestantError as error:
            about["reason"] = str(error)
            return
        self.running[name] = contestant

    def round(self, number: int, turnover: bool = False) -> None:
        """A turn for each, beginning with another one in every round."""
        names = list(self.running)
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            if name not in self.running:
                continue
            try:
                taken = self.turn(name, "fresh", seconds=self.settings.seconds)
                if name == "superbatch" and turnover:
                    self.results["turnover"].append(
                        self.turn(name, "fresh", seconds=self.settings.seconds, turnover=0.25)
                    )
            except ContestantError as error:
                if name in ("floor", "superbatch"):
                    raise
                self.results["peers"][name]["reason"] = str(error)
                del self.running[name]
                continue
            kept = (
                self.results[name]
                if name in ("floor", "superbatch")
                else self.results["peers"][name]["repeats"]
            )
            kept.append(taken)
            self.say(
                f"  round {number + 1}: {name} {taken['samples'] / taken['seconds']:,.0f} samples/s"
            )

    def turn(self, name: str, what: str, **settings: Any) -> Any:
        """One turn; ``others`` is the share of the cores that processes of others took meanwhile."""
        contestant = self.running[name]
        with _Others(contestant.pid) as others:
            taken = contestant.turn(what, **settings)
        if isinstance(taken, dict):
            taken["others"] = others.share
        return taken

    def close(self) -> None:
        for contestant in self.running.values():
            contestant.close()
        self.running.clear()


class _Others:
    """How busy processes that are not ours kept the cores that we use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.share = 0.0

    @staticmethod
    def _busy() -> float:
        times = psutil.cpu_times(percpu=True)
        used = [times[k] for k in sorted(os.sched_getaffinity(0)) if k < len(times)]
        return sum(t.user + t.nice + t.system + t.irq + t.softirq for t in used)

    def __enter__(self) -> _Others:
        self._start = time.perf_counter()
        self._before = self._busy() - machine.cpu_seconds(self.pid) - time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        after = self._busy() - machine.cpu_seconds(self.pid) - time.process_time()
        available = (time.perf_counter() - self._start) * len(os.sched_getaffinity(0))
        self.share = max(0.0, (after - self._before) / available)


def _details(field: Field, settings: Settings, say: Say) -> dict[str, Any]:
    """What is measured of superbatch alone, on W1."""
    rates = sorted(r["samples"] / r["seconds"] for r in field.results["superbatch"])
    step = field.workload.batch_size / rates[len(rates) // 2]
    say("  serving replays")
    served = field.turn("superbatch", "served", seconds=2 * settings.seconds)
    say("  memory")
    memory = field.turn("superbatch", "memory")
    say(f"  stall, {settings.stall_seconds:.0f} s of steps of {step * 1000:.1f} ms")
    stall = field.turn("superbatch", "stall", seconds=settings.stall_seconds, step_seconds=step)
    return {"served": served, "memory": memory, "stall": stall}


def _run_length(settings: Settings, say: Say) -> dict[str, Any]:
    """L: the same measurement on archives of several lengths, in turns."""
    entries = {label: workloads.length(times, settings.space) for label, times in LENGTHS.items()}
    say(f"l: {entries['1 x'].title}")
    running: dict[str, Contestant] = {}
    repeats: dict[str, list[dict[str, float]]] = {label: [] for label in entries}
    try:
        for label, workload in entries.items():
            store = stores.make(workload, settings.cache)
            running[label] = Contestant(label, SuperbatchEntrant, workload, store, settings.cores)
        for number in range(settings.repeat):
            labels = list(entries)
            shift = number % len(labels)
            for label in labels[shift:] + labels[:shift]:
                taken = running[label].turn("length")
                repeats[label].append(taken)
                say(
                    f"  round {number + 1}: {label}: first batch after "
                    f"{taken['first_batch_seconds']:.2f} s, "
                    f"{taken['superbatch_seconds']:.2f} s for a superbatch"
                )
    finally:
        for contestant in running.values():
            contestant.close()
    return {
        **_about(entries["1 x"]),
        "lengths": {
            label: {
                "steps": w.sizes["time"],
                "chunks": w.sizes["time"] // 36,
                "repeats": repeats[label],
            }
            for label, w in entries.items()
        },
    }
