"""Batches as NumPy arrays, for loops that are not written in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Arrays = dict[str, npt.NDArray[Any]]


class NumpyBatches:
    """The batches of a dataset as arrays; made by :meth:`superbatch.SuperbatchDataset.numpy`.

    Each ``iter()`` is an ``iter()`` of the dataset: it begins an epoch, and ends the one before.

    Parameters
    ----------
    batches : iterable of mapping
        Tensors, or lists of strings, by name.
    """

    def __init__(self, batches: Iterable[Mapping[str, Any]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Arrays]:
        for batch in self._batches:
            yield {name: to_array(values) for name, values in batch.items()}

    def __len__(self) -> int:
        if not isinstance(self._batches, Sized):
            raise TypeError(f"{type(self._batches).__name__} has no length")
        return len(self._batches)


def to_array(values: Any) -> npt.NDArray[Any]:
    """One field of a batch; on the CPU its memory is shared with the tensor, not copied."""
    if isinstance(values, torch.Tensor):
        return np.asarray(values.detach().cpu().numpy())
    return np.asarray(values)
