"""The demo's networks, small enough for a CPU, and what is gained by guessing without one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Planes:
    """Samples as images.

    Attributes
    ----------
    inputs : Tensor of shape (batch, channels, height, width)
        What the network sees.
    guess : Tensor of shape (batch, out, height, width)
        The guess without a network: the last step before (persistence), or zero.
    target : Tensor of shape (batch, out, height, width)
        What is to be found.
    """

    inputs: Tensor
    guess: Tensor
    target: Tensor


class ToPlanes:
    """Bring samples of any dimensions into images: the two longest dimensions are height and width.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    time : int or None
        The axis whose last step is the target; None where the target is the sample itself.
    """

    def __init__(self, shape: tuple[int, ...], time: int | None) -> None:
        self.time = time
        others = [axis for axis in range(len(shape)) if axis != time]
        longest = sorted(others, key=lambda axis: (-shape[axis], axis))[:2]
        image = sorted(longest)
        rest = [axis for axis in others if axis not in image]
        self._order = [0, *(1 + axis for axis in ([] if time is None else [time]) + rest + image)]
        self._size = [shape[axis] for axis in image]
        self._size = [1] * (2 - len(self._size)) + self._size
        self.steps = 1 if time is None else shape[time]
        planes = 1
        for axis in rest:
            planes *= shape[axis]
        self.outputs = planes
        self.inputs = planes * (self.steps if time is None else self.steps - 1)

    def __call__(self, batch: Tensor) -> Planes:
        """Divide a batch of shape (batch, *shape) into what is given and what is to be found."""
        steps = batch.float().permute(self._order)
        steps = steps.reshape(len(batch), self.steps, self.outputs, *self._size)
        if self.time is None:
            return Planes(steps[:, 0], torch.zeros_like(steps[:, 0]), steps[:, 0])
        last = steps[:, -2]
        # seen as differences from the last step, the mean of the field is no matter
        before = steps[:, :-1] - last[:, None]
        return Planes(before.flatten(1, 2), last, steps[:, -1])


class Forecaster(nn.Module):
    """Last step plus a correction: three convolutions over the steps before.

    The last layer starts at zero, so that training starts from persistence.
    """

    def __init__(self, inputs: int, outputs: int, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, width, 3, padding=1, padding_mode="replicate"),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1, padding_mode="replicate"),
            nn.GELU(),
            nn.Conv2d(width, outputs, 1),
        )
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Correction of shape (batch, outputs, height, width)."""
        correction: Tensor = self.layers(inputs)
        return correction


class Autoencoder(nn.Module):
    """Halves height and width, and restores them."""

    def __init__(self, inputs: int, width: int = 8) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(inputs, width, 3, padding=1, padding_mode="replicate"), nn.GELU()
        )
        self.decode = nn.Conv2d(width, inputs, 3, padding=1, padding_mode="replicate")

    def forward(self, inputs: Tensor) -> Tensor:
        """The same shape as the inputs."""
        size = inputs.shape[-2:]
        half = (max(1, size[0] // 2), max(1, size[1] // 2))
        code = nn.functional.adaptive_avg_pool2d(self.encode(inputs), half)
        restored: Tensor = self.decode(nn.functional.interpolate(code, size=size))
        return restored


class Learner(nn.Module):
    """A network, and the scale of the data that it has to know.

    Scale and centre are taken from the first training batches (:meth:`fit_scale`).
    """

    def __init__(self, shape: tuple[int, ...], time: int | None) -> None:
        super().__init__()
        self.planes = ToPlanes(shape, time)
        self.network: nn.Module = (
            Autoencoder(self.planes.inputs)
            if time is None
            else Forecaster(self.planes.inputs, self.planes.outputs)
        )
        self.register_buffer("centre", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))
        self.centre: Tensor
        self.scale: Tensor

    def fit_scale(self, batch: Tensor) -> None:
        """Take centre and scale of what the network has to add to the guess from a batch."""
        planes = self.planes(batch)
        missing = planes.target - planes.guess
        missing = missing[missing.isfinite()]
        if not len(missing):
            return
        # a forecast is a change from the last step: its centre stays zero
        self.centre = missing.mean() if self.planes.time is None else torch.zeros(())
        self.scale = (missing - self.centre).square().mean().sqrt().clamp_min(1e-12)

    def loss(self, batch: Tensor) -> Tensor:
        """Mean squared error of the network for a batch, in squared scales."""
        planes = self.planes(batch)
        error, known = self._missing(planes)
        return (error.square() * known).sum() / known.sum().clamp_min(1)

    @torch.no_grad()
    def errors(self, batches: Iterable[Tensor]) -> dict[str, float]:
        """Root mean square errors, in the unit of the data.

        Parameters
        ----------
        batches : iterable of Tensor of shape (batch, *shape)
            All of their elements count alike, but for those that are NaN.

        Returns
        -------
        dict of str to float
            Of ``"network"``, and of each guess that needs none.
        """
        squares: dict[str, float] = {}
        elements = 0.0
        for batch in batches:
            planes = self.planes(batch)
            error, known = self._missing(planes)
            found = {"network": error * self.scale}
            truth = torch.nan_to_num(planes.target - planes.guess)
            if self.planes.time is None:
                found["the mean"] = truth - self.centre
            else:
                found["persistence"] = truth
                if self.planes.steps > 2:
                    before = planes.inputs.unflatten(1, (self.planes.steps - 1, -1)).mean(1)
                    found[f"the mean of the {self.planes.steps - 1} before"] = truth - before
            known = known & torch.stack([e.isfinite() for e in found.values()]).all(0)
            elements += float(known.sum())
            for name, e in found.items():
                sum_of_squares = float(torch.where(known, e, 0.0).double().square().sum())
                squares[name] = squares.get(name, 0.0) + sum_of_squares
        return {name: math.sqrt(total / max(elements, 1.0)) for name, total in squares.items()}

    def _missing(self, planes: Planes) -> tuple[Tensor, Tensor]:
        """What the network leaves unexplained, in scales, and which elements have a truth."""
        known = planes.target.isfinite() & planes.guess.isfinite()
        inputs = torch.nan_to_num((planes.inputs - self.centre) / self.scale, 0.0, 0.0, 0.0)
        truth = (planes.target - planes.guess - self.centre) / self.scale
        return torch.where(known, truth, 0.0) - self.network(inputs), known
