"""Training on a running simulation: producers put batches on a Redis or Valkey server, a dataset trains on them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from superbatch.stream.reservoir import Reservoir
    from superbatch.stream.rounds import Rounds
    from superbatch.stream.source import StreamSource

_PUBLIC = {
    "Reservoir": "superbatch.stream.reservoir",
    "Rounds": "superbatch.stream.rounds",
    "StreamSource": "superbatch.stream.source",
}

__all__ = ["Reservoir", "Rounds", "StreamSource"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'superbatch.stream' has no attribute {name!r}")
