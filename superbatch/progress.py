"""One line that says how training is fed."""

from __future__ import annotations

import sys
from typing import Any

from superbatch.stats import Stats


class Progress:
    """A tqdm line: it/s, fresh samples a second, stall, replays, superbatches that are filled.

    Parameters
    ----------
    total : int or None
        Batches in the epoch, where they are known.
    epoch : int
    """

    def __init__(self, total: int | None, epoch: int) -> None:
        from tqdm.auto import tqdm

        self._linked = False
        self._bar: Any = tqdm(total=total, desc=f"epoch {epoch}", unit="it", dynamic_ncols=True)

    def update(self, stats: Stats, filled: int, slots: int) -> None:
        """One batch more.

        Parameters
        ----------
        stats : Stats
        filled, slots : int
            Superbatches that wait to be served, and how many there is room for.
        """
        if stats.dashboard and not self._linked:
            self._bar.write(f"Dask's dashboard: {stats.dashboard}", file=sys.stderr)
            self._linked = True
        self._bar.set_postfix_str(
            f"{stats.fresh_per_second:.0f} fresh/s, stall {100 * stats.stall_fraction:.1f} %, "
            f"replays {stats.replay_ratio:.2f}, superbatches filled {filled}/{slots}",
            refresh=False,
        )
        self._bar.update(1)

    def close(self) -> None:
        """Leave the line as it stands."""
        self._bar.close()
