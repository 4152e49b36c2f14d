"""A source of archives that is bound to one dataset, and is sent to its loaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from superbatch.archive.cut import Cutter
from superbatch.archive.plan import Plan
from superbatch.source import Fields, Filler, Late, State


@dataclass
class ArchiveFeed:
    """An ``ArchiveSource`` bound to one dataset."""

    plan: Plan
    cutter: Cutter
    threads: int
    dask: Any = None

    @property
    def fields(self) -> Fields:
        """The arrays of one sample."""
        return self.cutter.fields

    @property
    def labels(self) -> Mapping[str, npt.NDArray[Any]]:
        """Of fields that stand for strings: the strings that their numbers count."""
        return {
            extra.name: extra.labels
            for extra in self.cutter.extras
            if extra.labels is not None and extra.name in self.fields  # of what transform has left
        }

    @property
    def scales(self) -> Mapping[str, Late]:
        """Of fields that are normalised when a batch is given out: how."""
        return {
            cut.name: cut.values.late
            for cut in self.cutter.cuts
            if cut.values.late is not None and cut.name in self.fields
        }

    @property
    def samples(self) -> int:
        """Rows of a slot."""
        most = self.plan.samples
        return most if self.plan.epoch_samples is None else min(most, self.plan.epoch_samples)

    @property
    def drops(self) -> bool:
        """Whether superbatches may turn out shorter than planned."""
        return self.cutter.drops

    @property
    def continues(self) -> bool:
        """Each epoch begins anew."""
        return False

    def superbatches(self, epoch: int) -> int | None:
        """Superbatches in an epoch."""
        return self.plan.epoch_superbatches

    def batches(self, epoch: int, index: int) -> int:
        """Batches that a superbatch is planned to have."""
        return self.plan.batches(index)

    def batch_sizes(self, epoch: int, index: int, samples: int) -> Sequence[int]:
        """Full batches, but each that is planned keeps at least one sample."""
        size = self.plan.batch_size
        if samples < self.plan.size(index):  # reject has left some out
            return [size] * (samples // size) + ([samples % size] if samples % size else [])
        return self.plan.batch_sizes(index)

    def epoch_batches(self) -> int | None:
        """Fresh batches in an epoch."""
        return self.plan.epoch_batches

    def fingerprint(self) -> Mapping[str, Any]:
        """What has to be equal for a state to be resumed exactly."""
        plan = self.plan
        return {
            "samples": plan.samples,
            "sequences": plan.sequences,
            "batch_size": plan.batch_size,
            "coverage": plan.coverage,
            "shuffle": plan.shuffle,
            "replaced": plan.replaced,
            "windows": plan.total,
            "drawn_from": plan.digest(),
            "seed": plan.seed,
            "world_size": plan.world_size,
            # Ranks stand at the same place: what one has saved goes for all, as a checkpoint of rank 0 does.
            # Where samples are left out, each rank's superbatches have lengths of their own.
            **({"rank": plan.rank} if self.drops else {}),
        }

    @property
    def may_change(self) -> Collection[str]:
        """Nothing: where an epoch stands depends on all of it."""
        return ()

    def resume(self, index: int, state: State) -> None:
        """Nothing to do: superbatches follow from their numbers."""

    def descriptors(self) -> list[int]:
        """What loaders have to inherit: of arrays in memory, unless they go on to other machines."""
        if self.dask is not None:
            return []
        return [d for d in (array.share() for array in self.cutter.arrays) if d is not None]

    def open(self) -> Filler:
        """Called once, in the loader process."""
        from superbatch.archive.filler import ArchiveFiller

        return ArchiveFiller(self.plan, self.cutter, self.threads, self.dask)
