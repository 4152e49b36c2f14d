"""Training on a simulation while it runs.

Producers put batches on a Redis or Valkey server; a dataset trains on them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from superbatch.stream.gateway.server import Gateway
    from superbatch.stream.reservoir import Reservoir
    from superbatch.stream.rounds import Rounds
    from superbatch.stream.source import StreamSource

# Imported when first used: not everyone has redis-py.
_PUBLIC = {
    "Gateway": "superbatch.stream.gateway.server",
    "Reservoir": "superbatch.stream.reservoir",
    "Rounds": "superbatch.stream.rounds",
    "StreamSource": "superbatch.stream.source",
}

__all__ = ["Gateway", "Reservoir", "Rounds", "StreamSource"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'superbatch.stream' has no attribute {name!r}")
