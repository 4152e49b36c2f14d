"""Training on a simulation while it runs.

Producers put batches on a Redis or Valkey server; a dataset trains on them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from superbatch.stream.gateway.server import Gateway
    from superbatch.stream.models import latest_model, publish_model
    from superbatch.stream.producer import Producer
    from superbatch.stream.reservoir import Reservoir
    from superbatch.stream.retention import LRU, Append, Bounded, Overwrite, Ring
    from superbatch.stream.rounds import Rounds
    from superbatch.stream.server import Server
    from superbatch.stream.source import StreamSource

# Imported when first used: not everyone has redis-py.
_PUBLIC = {
    "Append": "superbatch.stream.retention",
    "Bounded": "superbatch.stream.retention",
    "Gateway": "superbatch.stream.gateway.server",
    "LRU": "superbatch.stream.retention",
    "Overwrite": "superbatch.stream.retention",
    "Producer": "superbatch.stream.producer",
    "Reservoir": "superbatch.stream.reservoir",
    "Ring": "superbatch.stream.retention",
    "Rounds": "superbatch.stream.rounds",
    "Server": "superbatch.stream.server",
    "StreamSource": "superbatch.stream.source",
    "latest_model": "superbatch.stream.models",
    "publish_model": "superbatch.stream.models",
}

__all__ = [
    "LRU",
    "Append",
    "Bounded",
    "Gateway",
    "Overwrite",
    "Producer",
    "Reservoir",
    "Ring",
    "Rounds",
    "Server",
    "StreamSource",
    "latest_model",
    "publish_model",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'superbatch.stream' has no attribute {name!r}")
