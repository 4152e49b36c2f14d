"""How much memory a superbatch takes, and the largest that fits."""

from __future__ import annotations

from dataclasses import dataclass

from superbatch.errors import ArgumentError

# What a loader process takes without data: Python, Dask, xarray and Zarr, measured as PSS.
PROCESS_BYTES = 200 << 20
# With memory=: no more sequences than this: a superbatch that takes minutes to load helps nobody.
MOST_SEQUENCES = 256
# Sequences of the next superbatch that threads have begun to load, or whose memory waits to be used again.
_WAITING = 2


@dataclass(frozen=True)
class Budget:
    """The memory of loaders and slots; the training process's own is not in it.

    Attributes
    ----------
    sample_bytes : int
        Of a sample in the slot.
    sequence_bytes : int
        Of a chunk sequence when it is loaded.
    kept : bool
        Whether sequences stay in memory until the next superbatch.
    loaders, threads : int
    existing : int or None
        Sequences that there are in all.
    """

    sample_bytes: int
    sequence_bytes: int
    kept: bool
    loaders: int = 1
    threads: int = 1
    existing: int | None = None

    def bytes(self, samples: int, sequences: int) -> dict[str, int]:
        """Bytes by what they are for.

        Returns
        -------
        dict
            ``slots``: one for each loader and one that is served; ``sequences``: the most that is loaded at a time;
            ``processes``: the loaders themselves; ``total``.
        """
        # Neighbours share chunks, and wait for each other: where a superbatch draws from most of the
        # archive, all of its sequences are in memory at once.
        loaded = sequences + self.threads + _WAITING
        if self.kept:
            # Those of the next superbatch are loaded before the last ones are let go.
            loaded += sequences
        if self.existing is not None:
            loaded = min(loaded, self.existing)
        parts = {
            "slots": (self.loaders + 1) * samples * self.sample_bytes,
            "sequences": self.loaders * loaded * self.sequence_bytes,
            "processes": self.loaders * PROCESS_BYTES,
        }
        return {**parts, "total": sum(parts.values())}

    def fit(self, memory: int, samples: int, sequences: int) -> tuple[int, int]:
        """The most samples and sequences, in the given proportion, that fit into ``memory``.

        Raises
        ------
        ArgumentError
            Not even one sequence does.
        """
        each = samples / sequences
        best = 0
        low, high = 1, MOST_SEQUENCES
        while low <= high:
            middle = (low + high) // 2
            if self.bytes(max(1, round(each * middle)), middle)["total"] <= memory:
                best, low = middle, middle + 1
            else:
                high = middle - 1
        if best == 0:
            need = self.bytes(max(1, round(each)), 1)["total"]
            raise ArgumentError(
                f"memory={memory / 1e6:.0f} MB is too little for one sequence, which takes {need / 1e6:.0f} MB "
                f"in all: give more, or shorten chunks_per_sequence"
            )
        return max(1, round(each * best)), best
