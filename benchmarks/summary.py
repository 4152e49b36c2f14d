"""From repeats to figures: medians, ratios within one round, and what was aimed at."""

from __future__ import annotations

from statistics import median
from typing import Any

RANDOM = ("random", "grid")
"""Access of peers that draw each sample on its own."""

KINDS = {
    "random": "peer that draws each sample on its own",
    "diverse": "peer with samples as diverse",
    "any": "peer of any kind",
}
"""Groups of peers that superbatch is compared with the best of, see `best_peer`."""


def rate(turn: dict[str, float]) -> float:
    """Samples a second of one turn."""
    return turn["samples"] / turn["seconds"]


def rates(turns: list[dict[str, float]]) -> list[float]:
    return [rate(t) for t in turns]


def cpu_per_gigabyte(turns: list[dict[str, float]], decoded_bytes_per_sample: float) -> float:
    """CPU seconds for each GB that the superbatch geometry decodes."""
    return median(t["cpu_seconds"] / (t["samples"] * decoded_bytes_per_sample / 1e9) for t in turns)


def ratio(over: list[dict[str, float]], under: list[dict[str, float]]) -> float:
    """Median of the ratios of two contestants' rates in the same rounds."""
    return median(rate(a) / rate(b) for a, b in zip(over, under, strict=False))


def decoded_per_sample(result: dict[str, Any]) -> float:
    """Bytes that superbatch decoded for a sample, over all repeats."""
    turns = result["superbatch"]
    return sum(t["decoded_bytes"] for t in turns) / sum(t["samples"] for t in turns)


def handicap(result: dict[str, Any]) -> float:
    """What superbatch's ratios are multiplied by, at most 1.

    The archives are short, so a superbatch draws some of its sequences twice and decodes them once,
    which it would not on a long one. Its ratios count it as if it had decoded all that the floor did.
    """
    nominal = result["superbatch_decoded_bytes"] / result["samples"]
    return min(1.0, decoded_per_sample(result) / nominal)


def table(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a workload's table, the fastest first, then those that could not take part."""
    if "lengths" in result:
        return []
    floor, ours = result["floor"], result["superbatch"]
    per_sample = result["superbatch_decoded_bytes"] / result["samples"]
    rows: list[dict[str, Any]] = [
        {
            "loader": "decode floor",
            "access": "",
            "repeats": rates(floor),
            "decoded_megabytes": per_sample / 1e6,
        },
        {
            "loader": "superbatch",
            "access": "superbatch",
            "repeats": rates(ours),
            "of_floor": ratio(ours, floor) * handicap(result),
            "decoded_megabytes": decoded_per_sample(result) / 1e6,
        },
    ]
    without = []
    for peer in result["peers"].values():
        turns = peer.get("repeats") or []
        row = {
            "loader": peer["name"],
            "access": peer.get("access", ""),
            "repeats": rates(turns),
            "reason": peer.get("reason"),
            "decoded_megabytes": None,
        }
        decoded = peer.get("decoded_bytes_per_sample")
        if decoded is not None:
            row["decoded_megabytes"] = decoded / 1e6
        if turns:
            row["of_floor"] = ratio(turns, floor)
            row["superbatch_is"] = ratio(ours, turns) * handicap(result)
            rows.append(row)
        else:
            without.append(row)
    for row in rows:
        row["samples_per_second"] = median(row["repeats"])
        row["lowest"], row["highest"] = min(row["repeats"]), max(row["repeats"])
    rows.sort(key=lambda r: -r["samples_per_second"])
    return rows + without


def best_peer(result: dict[str, Any], kind: str = "any") -> Any:
    """The row of the fastest peer, or None; the in-memory ceiling is no peer.

    ``kind`` is ``"random"``: each sample drawn on its own; ``"diverse"``: no more samples out of the
    same chunks than superbatch takes, give or take a fifth; or ``"any"``.
    """
    least = 0.8e-6 * result["superbatch_decoded_bytes"] / result["samples"]

    def counts(row: dict[str, Any]) -> bool:
        if row["loader"] in ("decode floor", "superbatch") or row["access"] == "memory":
            return False
        if not row["repeats"]:
            return False
        decoded = row["decoded_megabytes"]
        return (
            kind == "any"
            or row["access"] in RANDOM
            or (kind == "diverse" and decoded is not None and decoded >= least)
        )

    return next((row for row in table(result) if counts(row)), None)


def _aim(what: str, value: float, aim: str, met: bool, unit: str = "") -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit, "aim": aim, "met": met}


def aims(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What was reached, and what was aimed at, for one workload."""
    if "lengths" in result:
        return _length_aims(result)
    found = []
    name = result["name"]
    of_floor = ratio(result["superbatch"], result["floor"]) * handicap(result)
    if name == "w1":
        found.append(_aim("fresh samples/s, of the floor", of_floor, "≥ 0.85", of_floor >= 0.85))
    for kind, words in KINDS.items():
        row = best_peer(result, kind)
        if row is None:
            continue
        times = row["superbatch_is"]
        what = f"x the best {words} ({row['loader']})"
        if name in ("w1", "w1-fine"):
            least = 30 if name == "w1" else 3
            found.append(_aim(what, times, f"≥ {least}", times >= least))
        else:
            met = times >= 5 or of_floor >= 0.7
            found.append(_aim(what, times, "≥ 5, or 0.7 of the floor", met))
    if name not in ("w1", "w1-fine") and found:
        found.append(
            _aim("fresh samples/s, of the floor", of_floor, "≥ 0.7, or 5 x", found[0]["met"])
        )
    if "details" in result:
        found += _w1_aims(result)
    return found


def _w1_aims(result: dict[str, Any]) -> list[dict[str, Any]]:
    ours, floor, details = result["superbatch"], result["floor"], result["details"]
    nominal = result["superbatch_decoded_bytes"] / result["samples"]
    times = ratio(result["turnover"], ours)
    served = details["served"]
    replay = median(
        a / b for a, b in zip(served["superbatch"], served["index_select"], strict=True)
    )
    graph = median(t["graph_seconds"] for t in ours) * 1000
    first = median(t["first_batch_seconds"] for t in ours)
    stalled = details["stall"]["stall_fraction"] * 100
    outside = details["stall"]["stall_fraction_outside"] * 100
    memory = details["memory"]
    allowed = (2 * memory["slot_bytes"] + memory["sequences_bytes"] + 400e6) / 1e6
    peak = memory["peak_bytes"] / 1e6
    cpu = cpu_per_gigabyte(ours, decoded_per_sample(result)) / cpu_per_gigabyte(floor, nominal)
    batches = median(served["superbatch"])
    return [
        _aim("new windows/s at turnover 0.25, of 1.0", times, "≥ 3", times >= 3),
        _aim("replayed batches/s, of index_select", replay, "≥ 0.9", replay >= 0.9),
        _aim("replayed batches/s", batches, "≥ 3,000", batches >= 3000),
        _aim("graph of one superbatch", graph, "≤ 10", graph <= 10, "ms"),
        _aim("first batch after iter()", first, "≤ 2", first <= 2, "s"),
        _aim("stall, by superbatch", stalled, "≤ 1", stalled <= 1, "%"),
        _aim("stall, seen from outside", outside, "≤ 1", outside <= 1, "%"),
        _aim("peak memory", peak, f"≤ {allowed:,.0f}", peak <= allowed, "MB"),
        _aim("CPU seconds per GB, of the floor's", cpu, "≤ 1.25", cpu <= 1.25),
    ]


def _length_aims(result: dict[str, Any]) -> list[dict[str, Any]]:
    lengths = result["lengths"]
    short = lengths["1 x"]["repeats"]
    found = []
    for label, entry in lengths.items():
        if label == "1 x":
            continue
        for key, what in (
            ("sequence_seconds", "a superbatch, for each sequence loaded"),
            ("plan_seconds", "planning"),
            ("sequence_graph_seconds", "graph, for each sequence loaded"),
            ("first_batch_seconds", "first batch"),
            ("open_seconds", "opening"),
        ):
            times = median(
                a[key] / b[key] for a, b in zip(entry["repeats"], short, strict=True) if b[key]
            )
            found.append(_aim(f"{what}, {label} against 1 x", times, "≤ 1.1", times <= 1.1))
    return found


def disturbance(results: list[dict[str, Any]]) -> float:
    """The largest median share of the cores that other processes took while one loader ran."""
    shares = []
    for result in results:
        groups = [result.get("floor", []), result.get("superbatch", [])]
        groups += [p.get("repeats", []) for p in result.get("peers", {}).values()]
        shares += [median(t["others"] for t in turns) for turns in groups if turns]
    return max(shares, default=0.0)
