"""Two columns of the anchor that are not valid independently, such as times and sites of series with gaps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from superbatch.archive.grid import Dimension
from superbatch.archive.validity import longest
from superbatch.errors import ArgumentError

Bools = npt.NDArray[np.bool_]


class Pairs:
    """Which pairs may be drawn, and why the others may not.

    Attributes
    ----------
    names : (str, str) or None
        The two columns; None where everything is valid independently.
    valid : bool array or None
    reasons : dict of str to int
        How many pairs each reason has ruled out that nothing else had.
    when : dict of str to list of str
        Where most of them are, for people.
    """

    def __init__(self, columns: Mapping[str, Dimension]) -> None:
        self.columns = columns
        self.names: tuple[str, str] | None = None
        self.valid: Bools | None = None
        self.reasons: dict[str, int] = {}
        self.when: dict[str, list[str]] = {}

    def rule_out(self, pair: tuple[str, str], valid: Bools, reason: str) -> None:
        """Allow only what is valid for this reason too.

        Parameters
        ----------
        pair : (str, str)
            Two columns.
        valid : bool array, shape (length of the first, length of the second)
        reason : str

        Raises
        ------
        ArgumentError
            Another pair of columns than before.
        """
        if valid.all():
            return
        if self.names not in (None, pair):
            raise ArgumentError(
                f"what is valid depends on {' and '.join(self.names or ())} together, and on {' and '.join(pair)} "
                f"together: only one such pair can be drawn from"
            )
        self.names = pair
        self._explain(pair, valid, reason)
        self.valid = valid if self.valid is None else self.valid & valid

    def _explain(self, pair: tuple[str, str], valid: Bools, reason: str) -> None:
        """Count the pairs that only this reason rules out, and say where most of them are."""
        first, second = (self.columns[name] for name in pair)
        rows, columns = (
            np.logical_and.reduce([np.ones(c.length, dtype=bool), *c.valid.values()])
            for c in (first, second)
        )
        lost = ~valid
        lost[~rows] = False
        if self.valid is not None:
            lost &= self.valid
        number = np.where(columns, np.count_nonzero(lost, axis=0), 0)
        self.reasons[reason] = int(number.sum())
        worst = [c for c in np.argsort(-number, kind="stable")[:5].tolist() if number[c]]
        self.when[reason] = [
            f"{second.name} {c if second.coordinate is None else second.coordinate[c]}: "
            + ", ".join(longest(np.flatnonzero(lost[:, c]), first.coordinate))
            for c in worst
        ]
