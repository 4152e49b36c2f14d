"""Feed training loops from data that does not fit in memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from superbatch.archive.source import ArchiveSource
    from superbatch.dataset import SuperbatchDataset
    from superbatch.errors import SuperbatchError
    from superbatch.stats import Stats
    from superbatch.tuning import headspace, tune
    from superbatch.window import HERE, Forecast, Window

__version__ = "0.1.0"

# Imported when first used: a loader process imports this package too, and needs no torch.
_PUBLIC = {
    "HERE": "superbatch.window",
    "ArchiveSource": "superbatch.archive.source",
    "Forecast": "superbatch.window",
    "SuperbatchDataset": "superbatch.dataset",
    "SuperbatchError": "superbatch.errors",
    "Stats": "superbatch.stats",
    "Window": "superbatch.window",
    "headspace": "superbatch.tuning",
    "tune": "superbatch.tuning",
}

__all__ = [
    "HERE",
    "ArchiveSource",
    "Forecast",
    "Stats",
    "SuperbatchDataset",
    "SuperbatchError",
    "Window",
    "headspace",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'superbatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
