"""Training on a simulation while it runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from superbatch.stream.gateway.server import Gateway

# Imported when first used: not everyone has redis-py.
_PUBLIC = {"Gateway": "superbatch.stream.gateway.server"}

__all__ = ["Gateway"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'superbatch.stream' has no attribute {name!r}")
