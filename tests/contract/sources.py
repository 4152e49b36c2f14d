"""The sources and transports that the contract tests run against.

A source that is added here has to pass all of them. It says how it is made, how a batch of it proves
itself, and whether its epochs end.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import superbatch as sb
from superbatch import stream
from tests.fields import corners, field, write_plain
from tests.stream.plain import Reader, Server, identify, put_all

WHOLE = field((150, 5, 4))
SAMPLES, BATCH = 32, 8


@dataclass(frozen=True)
class Case:
    """A source under contract.

    Attributes
    ----------
    name : str
    make : callable
        ``make(folder, transform) -> Source``, with ``SAMPLES`` samples in a superbatch.
    identify : callable
        ``identify(batch) -> list``: which samples a batch holds; fails where a value is not theirs.
    epoch : int or None
        Fresh samples in an epoch; None where it does not end.
    continues : bool
        Whether an epoch goes on where the one before ended, so that none can be had again.
    loaders : int
        As many as it takes, up to two.
    """

    name: str
    make: Callable[[Path, Callable[..., Any] | None], Any]
    identify: Callable[[Any], list[Any]]
    epoch: int | None
    continues: bool = False
    loaders: int = 2

    def __str__(self) -> str:
        return self.name


def _archive(coverage: str) -> Case:
    def make(folder: Path, transform: Callable[..., Any] | None = None) -> Any:
        path = folder / "field.zarr"
        if not path.exists():
            write_plain(path, WHOLE, chunks=(4, 5, 2), dimension_names=("time", "y", "x"))
        import zarr

        stored = zarr.open_array(path, mode="r")
        half = xr.DataArray(WHOLE[..., 0] / 2, dims=("time", "y"))
        return sb.ArchiveSource(
            {"field": sb.Window(stored, time=3, x=2), "half": sb.Window(half, time=1)},
            samples=SAMPLES,
            sequences=4,
            coverage=coverage,
            transform=transform,
        )

    def identify(batch: Any) -> list[Any]:
        at = corners(batch["field"], WHOLE)
        # The second modality is centred on the anchor, one position after the window's beginning.
        expected = np.stack([WHOLE[t + 1 : t + 2, :, 0] / 2 for t in at[:, 0]])
        np.testing.assert_array_equal(batch["half"], expected)
        return [tuple(corner) for corner in at.tolist()]

    windows = (150 - 2) * 3
    return Case(f"archive-{coverage}", make, identify, windows if coverage == "once" else None)


def _stream() -> Case:
    batches = 40
    servers: dict[Path, Server] = {}

    def make(folder: Path, transform: Callable[..., Any] | None = None) -> Any:
        if folder not in servers:
            servers[folder] = Server(folder)
            atexit.register(servers[folder].stop)
            put_all(servers[folder].address, ["sim0", "sim1"], batches // 2, BATCH)
        rounds = stream.Rounds(SAMPLES // BATCH)
        return stream.StreamSource(servers[folder].address, "sim*", rounds, connect=Reader)

    return Case("stream-rounds", make, identify, batches * BATCH, continues=True, loaders=1)


SOURCES = [_archive("random"), _archive("once"), _stream()]
TRANSPORTS = ["shared", "pipe"]
