"""Batches of SmartRedis clients, put again as those of producers: then a StreamSource reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from superbatch.errors import ArgumentError
from superbatch.stream import frame
from superbatch.stream.producer import Producer
from superbatch.stream.retention import Retention


class Republish:
    """One producer for each name that a gateway tells of.

    Parameters
    ----------
    address : str
    retention : Retention or None
    timeout : float
    """

    def __init__(self, address: str, retention: Retention | None, timeout: float) -> None:
        self._address, self._retention, self._timeout = address, retention, timeout
        self._producers: dict[str, Producer] = {}
        self.skipped = 0

    def __call__(self, producer: str, fields: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put a batch. Characters that a pattern or a cluster reads otherwise become ``_``.

        What is no batch, such as tensors of different lengths, is counted and left where the client has put it:
        a simulation may have other use for it.
        """
        try:
            frame.checked(fields)
        except ArgumentError:
            self.skipped += 1
            return
        name = re.sub(r"[{}*?\[\]]", "_", producer) or "_"
        if name not in self._producers:
            self._producers[name] = Producer(
                self._address, name, self._retention, timeout=self._timeout
            )
        self._producers[name].put(**fields)

    def close(self) -> None:
        """Mark the end of all of them."""
        for producer in self._producers.values():
            producer.close()
