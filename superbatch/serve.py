"""Batches out of a superbatch, as tensors that belong to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch

from superbatch.errors import ArgumentError, shown

Batch = dict[str, torch.Tensor]


class Host:
    """Superbatches stay in their slots; batches are copied out of them."""

    holds_slot = True

    def __init__(self) -> None:
        self._tensors: Mapping[str, torch.Tensor] = {}

    def take(self, arrays: Mapping[str, npt.NDArray[Any]], samples: int) -> None:
        """Serve from these arrays from now on."""
        self._tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}

    def run(self, begin: int, end: int) -> Batch:
        """Neighbouring rows."""
        return {name: tensor[begin:end].clone() for name, tensor in self._tensors.items()}

    def rows(self, rows: torch.Tensor) -> Batch:
        """Any rows."""
        return {name: torch.index_select(t, 0, rows) for name, t in self._tensors.items()}

    def order(self, rows: npt.NDArray[Any]) -> torch.Tensor:
        """The order of a pass, where the samples are."""
        return torch.from_numpy(rows)


class Device:
    """Each superbatch is copied to a device once, and replayed there.

    Parameters
    ----------
    device : str or torch.device
    """

    holds_slot = False

    def __init__(self, device: str | torch.device) -> None:
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except Exception as error:  # each backend has its own
            reason = str(error).partition("\n")[0].rstrip(".:")
            raise ArgumentError(
                f"device={shown(device)} cannot be used ({reason:.200}): write one that torch has here, "
                f'such as "cuda" or "cpu"'
            ) from None
        self._resident: dict[str, torch.Tensor] = {}
        self._pinned: dict[int, torch.Tensor] = {}

    def take(self, arrays: Mapping[str, npt.NDArray[Any]], samples: int) -> None:
        """Copy the samples over; when this returns, the slot is free again."""
        for name, array in arrays.items():
            tensor = torch.from_numpy(array)
            self._pin(tensor)
            if name not in self._resident:
                self._resident[name] = torch.empty_like(tensor, device=self.device)
            self._resident[name][:samples].copy_(tensor[:samples], non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def run(self, begin: int, end: int) -> Batch:
        """Neighbouring rows."""
        return {name: tensor[begin:end].clone() for name, tensor in self._resident.items()}

    def rows(self, rows: torch.Tensor) -> Batch:
        """Any rows."""
        return {name: torch.index_select(t, 0, rows) for name, t in self._resident.items()}

    def order(self, rows: npt.NDArray[Any]) -> torch.Tensor:
        """The order of a pass, where the samples are."""
        return torch.from_numpy(rows).to(self.device)

    def _pin(self, tensor: torch.Tensor) -> None:
        """Lock the slot's pages once, so that the device reads them without a detour."""
        if self.device.type != "cuda" or tensor.data_ptr() in self._pinned:
            return
        size = tensor.numel() * tensor.element_size()
        torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), size, 0)
        self._pinned[tensor.data_ptr()] = tensor
