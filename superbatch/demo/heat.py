"""A small simulation: heat that is put into a plate here and there, and spreads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.float32]


class Plate:
    """A plate of ``size × size`` points, warm where it is heated, cold at its edge.

    The temperature follows the heat equation ``u_t = k (u_xx + u_yy) + q``, with the five-point stencil in
    space and explicit steps in time, stable for ``k dt / dx² ≤ 1/4`` (Courant, Friedrichs and Lewy 1928).
    Heaters move on a circle each, at a speed of their own.

    Parameters
    ----------
    size : int
        Points along an edge.
    seed : int
        Where the heaters are, and how they move.
    heaters : int

    Examples
    --------
    >>> plate = Plate(16, seed=1)
    >>> plate.advance(100).shape, float(plate.temperature.max()) > 0
    ((16, 16), True)
    """

    DIFFUSION = 0.2  # k dt / dx²

    def __init__(self, size: int, seed: int = 0, heaters: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.temperature = np.zeros((size, size), np.float32)
        self._centre = rng.uniform(0.3, 0.7, (heaters, 2)) * size
        self._radius = rng.uniform(0.05, 0.25, heaters) * size
        self._phase, self._speed = rng.uniform(0, 6.28, heaters), rng.uniform(-0.02, 0.02, heaters)
        self._steps = 0
        self._points = np.mgrid[:size, :size].astype(np.float32)

    def advance(self, steps: int) -> Field:
        """So many steps in time; the temperature afterwards, shape (size, size)."""
        u = self.temperature
        for _ in range(steps):
            inner = u[1:-1, 1:-1]
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
            u[1:-1, 1:-1] = inner + self.DIFFUSION * around
            u += self._heat()
            u[0], u[-1], u[:, 0], u[:, -1] = 0, 0, 0, 0
            self._steps += 1
        return u.copy()

    def _heat(self) -> Field:
        angle = self._phase + self._speed * self._steps
        y = self._centre[:, 0] + self._radius * np.sin(angle)
        x = self._centre[:, 1] + self._radius * np.cos(angle)
        away = (self._points[0] - y[:, None, None]) ** 2 + (self._points[1] - x[:, None, None]) ** 2
        heat: Field = (0.1 * np.exp(-away / 4).sum(axis=0)).astype(np.float32)
        return heat
