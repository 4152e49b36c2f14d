"""Batches out of a superbatch, as tensors that belong to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from superbatch.errors import ArgumentError, shown
from superbatch.source import Late

# Tensors, but for strings, which come as lists.
Batch = dict[str, Any]


class Finish:
    """What is left to be done when a batch is given out.

    Parameters
    ----------
    labels : mapping of str to array of str
        Fields that come as lists of these strings.
    scales : mapping of str to Late
        Fields that are normalised now, so that smaller numbers travel.
    """

    def __init__(
        self,
        labels: Mapping[str, npt.NDArray[Any]],
        scales: Mapping[str, Late],
    ) -> None:
        self._labels = {name: strings.tolist() for name, strings in labels.items()}
        self._scales = scales
        self._cached: dict[tuple[str, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}
        self.nothing = not labels and not scales

    def __call__(self, batch: Batch) -> Batch:
        """The batch as the user gets it."""
        for name, late in self._scales.items():
            values = batch[name]
            key = name, values.device
            if key not in self._cached:
                kind = torch.from_numpy(np.empty(0, late.dtype)).dtype
                self._cached[key] = (
                    torch.as_tensor(
                        0.0 if late.mean is None else late.mean, dtype=kind, device=values.device
                    ),
                    torch.as_tensor(
                        1.0 if late.std is None else late.std, dtype=kind, device=values.device
                    ),
                )
            shift, scale = self._cached[key]
            batch[name] = (values.to(scale.dtype) - shift) / scale
            missing = float("nan") if late.fill is None else late.fill
            if late.mask is not None:
                if late.mask in batch:
                    batch[name].masked_fill_(~batch[late.mask], missing)
            elif late.fill is not None:
                batch[name].nan_to_num_(nan=missing, posinf=float("inf"), neginf=float("-inf"))
        for name, strings in self._labels.items():
            batch[name] = _named(batch[name].tolist(), strings)
        return batch


def _named(numbers: Any, strings: list[str]) -> Any:
    if isinstance(numbers, list):
        return [_named(number, strings) for number in numbers]
    return strings[numbers]


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
