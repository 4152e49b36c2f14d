"""How results are shown: tables in Markdown, JSON, and bars with the floor as a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import summary

DISTURBED = 0.05
"""Share of the cores taken by others above which the report says so."""


def number(value: float | None, digits: int = 3) -> str:
    """A figure with a few significant digits, thousands separated."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def text(run: dict[str, Any]) -> str:
    """The whole report."""
    parts = []
    machine, settings = run["machine"], run["settings"]
    parts.append(
        f"superbatch {run['versions'].get('superbatch', '?')} on {machine['cpu']}, "
        f"{machine['cores_used']} of {machine['cores']} cores, "
        f"{machine['memory_gigabytes']} GB, {machine['system']}, Python {machine['python']}; "
        f"medians of {settings['repeat']} interleaved repeats."
    )
    if run["quick"]:
        parts.append("**quick: short archives and short turns, not for comparison**")
    disturbed = summary.disturbance(run["workloads"])
    if disturbed > DISTURBED:
        parts.append(
            f"**Other processes took up to {disturbed:.0%} of the cores during the turns: "
            "run this on a quiet machine.**"
        )
    for result in run["workloads"]:
        parts.append(f"## {result['name'].upper()}: {result['title']}")
        if result["note"]:
            parts.append(result["note"][0].upper() + result["note"][1:] + ".")
        parts.append(_geometry(result))
        rows = summary.table(result)
        if rows:
            parts.append(_rows(rows))
            if (factor := summary.handicap(result)) < 0.995:
                parts.append(
                    "The archive is so short that sequences are drawn twice: superbatch decoded "
                    f"{factor:.0%} of what the floor did for a sample, and its ratios are "
                    f"multiplied by {factor:.2f}."
                )
        if "lengths" in result:
            parts.append(_lengths(result))
        reached = summary.aims(result)
        if reached:
            parts.append(_aims(reached))
    tunings = _tunings(run["workloads"])
    if tunings:
        parts.append("## How the others were set up\n\n" + tunings)
    return "\n\n".join(parts) + "\n"


def _geometry(result: dict[str, Any]) -> str:
    kinds: dict[str, list[str]] = {}
    for a in result["arrays"]:
        chunk = f"{tuple(a['chunks'])} chunks"
        if a["shards"]:
            chunk += f" in {tuple(a['shards'])} shards"
        kinds.setdefault(
            f"{tuple(a['shape'])} {a['dtype']} in {chunk}, windows {tuple(a['window'])}", []
        ).append(a["name"])
    arrays = "; ".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())
    return (
        f"{arrays}. Batches of {result['batch_size']}, {result['sample_bytes'] / 1e3:,.0f} kB "
        f"a sample; superbatches of {result['samples']:,} samples from {result['sequences']} "
        f"sequences, {result['superbatch_decoded_bytes'] / 1e6:,.0f} MB decoded for each."
    )


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(r[k]) for r in [head, *rows]) for k in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [
            c.ljust(w) if k == 0 else c.rjust(w)
            for k, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * w if k == 0 else "-" * (w - 1) + ":" for k, w in enumerate(widths)]
    return "\n".join([line(head), line(rule), *map(line, rows)])


_ACCESS = {
    "": "",
    "random": "each anywhere",
    "grid": "patches of a grid",
    "blocks": "blocks of neighbours",
    "memory": "each anywhere, in memory",
    "superbatch": "superbatches",
}


def _rows(rows: list[dict[str, Any]]) -> str:
    head = [
        "loader",
        "samples",
        "fresh samples/s",
        "lowest–highest",
        "of the floor",
        "superbatch is",
        "MB decoded a sample",
    ]
    out = []
    for row in rows:
        if not row["repeats"]:
            out.append([row["loader"], f"cannot: {row['reason']}", "", "", "", "", ""])
            continue
        out.append(
            [
                row["loader"],
                _ACCESS[row["access"]],
                number(row["samples_per_second"]),
                f"{number(row['lowest'])}–{number(row['highest'])}",
                number(row.get("of_floor")),
                f"{number(row['superbatch_is'])} x" if "superbatch_is" in row else "",
                number(row["decoded_megabytes"]),
            ]
        )
        if row.get("reason"):
            out[-1][1] += f" (stopped: {row['reason']})"
    return _markdown(head, out)


def _aims(rows: list[dict[str, Any]]) -> str:
    out = [
        [
            r["what"],
            f"{number(r['value'])} {r['unit']}".strip(),
            r["aim"],
            "yes" if r["met"] else "no",
        ]
        for r in rows
    ]
    return _markdown(["superbatch", "measured", "aim", "reached"], out)


def _lengths(result: dict[str, Any]) -> str:
    from statistics import median

    keys = (
        "open_seconds",
        "constructor_seconds",
        "first_batch_seconds",
        "superbatch_seconds",
        "plan_seconds",
        "graph_seconds",
    )
    head = [
        "archive",
        "chunks",
        "sequences",
        *(k.removesuffix("_seconds").replace("_", " ") for k in keys),
    ]
    rows = []
    for label, entry in result["lengths"].items():
        medians = [median(t[k] for t in entry["repeats"]) for k in keys]
        loaded = median(t["sequences"] for t in entry["repeats"])
        rows.append(
            [
                label,
                f"{entry['chunks']:,}",
                f"{loaded:.1f}",
                *(f"{m * 1000:,.1f} ms" for m in medians),
            ]
        )
    return _markdown(head, rows)


def _tunings(results: list[dict[str, Any]]) -> str:
    found = {}
    for result in results:
        for peer in result.get("peers", {}).values():
            if "tuning" in peer:
                found[peer["name"]] = f"- {peer['name']}: {peer['tuning']}. {peer['source']}"
    return "\n".join(found.values())


def write_json(run: dict[str, Any], path: Path) -> None:
    """All settings and all repeats, and the figures derived from them."""
    derived = [{**r, "table": summary.table(r), "aims": summary.aims(r)} for r in run["workloads"]]
    path.write_text(json.dumps({**run, "workloads": derived}, indent=1) + "\n")


def plot(run: dict[str, Any], path: Path) -> bool:
    """Bars of fresh samples a second for each workload, on a log scale, the floor as a line.

    False, and no figure, when no workload has rates: all failed, or only L was run.
    """
    from matplotlib.figure import Figure

    shown = [r for r in run["workloads"] if r.get("floor")]
    if not shown:
        return False
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    most = max(len([t for t in summary.table(r) if t["repeats"]]) for r in shown)
    size = 5.2 * columns, lines * (1.3 + 0.36 * most)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis, result in zip(axes.flat, shown, strict=False):
        _bars(axis, result)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    m = run["machine"]
    title = f"Fresh samples a second; {m['cpu']}, {m['cores_used']} cores"
    figure.suptitle(title + ("; QUICK" if run["quick"] else ""))
    figure.savefig(path, dpi=130)
    return True


def _bars(axis: Any, result: dict[str, Any]) -> None:
    rows = [r for r in summary.table(result) if r["repeats"]]
    floor = next(r for r in rows if r["loader"] == "decode floor")
    rows = [r for r in rows if r is not floor][::-1]
    values = [r["samples_per_second"] for r in rows]
    colours = {"superbatch": "#1f77b4", "PyTorch, in memory": "#bbbbbb"}
    axis.barh(
        [r["loader"] for r in rows],
        values,
        xerr=[
            [v - r["lowest"] for v, r in zip(values, rows, strict=True)],
            [r["highest"] - v for v, r in zip(values, rows, strict=True)],
        ],
        color=[colours.get(r["loader"], "#ff9f4a") for r in rows],
        error_kw={"elinewidth": 0.8, "capsize": 2},
    )
    axis.set_xscale("log")
    low = min([*values, floor["samples_per_second"]])
    high = max([*values, floor["samples_per_second"]])
    axis.set_xlim(low / 2, high * 8)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axis.axvline(floor["samples_per_second"], color="black", linestyle="--", linewidth=1)
    for k, row in enumerate(rows):
        axis.text(
            row["highest"] * 1.2,
            k,
            number(row["samples_per_second"]),
            va="center",
            size=8,
            bbox=behind,
        )
    axis.text(
        floor["samples_per_second"],
        len(rows) - 0.3,
        f"decode floor {number(floor['samples_per_second'])}",
        ha="center",
        va="center",
        size=8,
        bbox=behind,
    )
    axis.set_ylim(-0.6, len(rows))
    axis.set_title(f"{result['name'].upper()}: {result['title']}", size=10)
    axis.tick_params(labelsize=8)
