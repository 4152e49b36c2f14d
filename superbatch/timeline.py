"""What loaders and the training loop did when: as a Chrome trace, and as a picture."""

from __future__ import annotations

import json
import os
from typing import Any

from superbatch.source import Filled
from superbatch.stats import Stats

_LOOP = "training loop"
_COLOURS = {
    "load": "tab:blue",
    "waits for a slot": "lightgrey",
    "serve": "tab:green",
    "stall": "tab:red",
}
# Pieces narrower than this share of the picture cannot be seen.
_NARROW = 1e-4


def events(stats: Stats) -> list[dict[str, Any]]:
    """The time line in the format of Chrome's trace viewer.

    Parameters
    ----------
    stats : Stats

    Returns
    -------
    list of dict
        Complete events (``"ph": "X"``) in microseconds since the first ``iter()``, and the names of their
        rows: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
    """
    rows = {_LOOP: 0}
    found = []
    for kind, begin, end in stats.timeline:
        if kind != "load":
            found.append(_event(kind, 0, begin, end, {}))
    for load in stats.loads:
        row = rows.setdefault(f"loader {load.loader}", load.loader + 1)
        began = load.began - stats.began
        if load.idle_seconds > 0:
            found.append(_event("waits for a slot", row, began - load.idle_seconds, began, {}))
        found.append(
            _event(
                f"superbatch {load.superbatch}", row, began, load.ended - stats.began, _about(load)
            )
        )
    names = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": name}}
        for name, row in rows.items()
    ]
    return names + sorted(found, key=lambda event: event["ts"])


def write_trace(stats: Stats, path: str | os.PathLike[str]) -> None:
    """Write the time line for ``chrome://tracing`` or https://ui.perfetto.dev.

    Parameters
    ----------
    stats : Stats
    path : path-like
        Of the JSON.
    """
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events(stats), "displayTimeUnit": "ms"}, file)


def plot(stats: Stats, path: str | os.PathLike[str]) -> None:
    """Draw the time line: a row for the training loop, and one for each loader.

    Parameters
    ----------
    stats : Stats
    path : path-like
        Of the PNG.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    drawn = [e for e in events(stats) if e["ph"] == "X"]
    rows = sorted({event["tid"] for event in drawn} | {0})
    end = max((event["ts"] + event["dur"] for event in drawn), default=1.0) / 1e6
    figure = Figure(figsize=(10, 1.2 + 0.6 * len(rows)))
    axes = figure.subplots()
    used = set()
    for event in drawn:
        kind = "load" if event["name"].startswith("superbatch") else event["name"]
        if event["dur"] / 1e6 < _NARROW * end:
            continue
        used.add(kind)
        # Two superbatches of a loader overlap: the next is begun while one is being finished.
        shift = 0.2 * (event["args"].get("superbatch", 0) % 2) if kind == "load" else 0.0
        height = 0.4 if kind == "load" else 0.6
        axes.broken_barh(
            [(event["ts"] / 1e6, event["dur"] / 1e6)],
            (rows.index(event["tid"]) - 0.3 + shift, height),
            facecolors=_COLOURS[kind],
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set_yticks(range(len(rows)), [_LOOP if row == 0 else f"loader {row - 1}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("seconds since the first iter()")
    axes.set_title(stats.explain(), fontsize=8, loc="left", wrap=True)
    axes.legend(
        handles=[Patch(color=c, label=k) for k, c in _COLOURS.items() if k in used],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.25),
        ncol=4,
        frameon=False,
    )
    figure.savefig(path, dpi=120, bbox_inches="tight")


def _event(name: str, row: int, begin: float, end: float, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "ph": "X",
        "pid": 1,
        "tid": row,
        "ts": round(begin * 1e6),
        "dur": max(0, round((end - begin) * 1e6)),
        "args": about,
    }


def _about(load: Filled) -> dict[str, Any]:
    return {
        "superbatch": load.superbatch,
        "samples": load.samples,
        "sequences": load.sequences,
        "decoded MB": round(load.decoded_bytes / 1e6, 1),
        "plan ms": round(1e3 * load.plan_seconds, 2),
        "graph ms": round(1e3 * load.graph_seconds, 2),
        "fetch s, all threads": round(load.fetch_seconds, 3),
        "decode s, all threads": round(load.read_seconds - load.fetch_seconds, 3),
        "cut s, all threads": round(load.cut_seconds, 3),
    }
