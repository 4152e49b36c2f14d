"""Which of several training processes this is, and what they settle among themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from superbatch.errors import ArgumentError, shown


@dataclass(frozen=True)
class Ranks:
    """This process's place among those that train together."""

    rank: int
    world_size: int

    @classmethod
    def of(cls, rank: int | None, world_size: int | None) -> Ranks:
        """As given, or from ``torch.distributed`` where it is initialised, or alone."""
        if (rank is None) != (world_size is None):
            raise ArgumentError(
                f"rank={shown(rank)} and world_size={shown(world_size)}: give both, or neither"
            )
        if rank is None or world_size is None:
            if dist.is_available() and dist.is_initialized():
                return cls(dist.get_rank(), dist.get_world_size())
            return cls(0, 1)
        for name, value in (("rank", rank), ("world_size", world_size)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentError(f"{name}={shown(value)} is not a number: write an int")
        if not 0 <= rank < world_size:
            raise ArgumentError(
                f"rank={rank} is not one of world_size={world_size} ranks: write 0 to {world_size - 1}"
            )
        return cls(rank, world_size)


class Agreement:
    """All ranks answer one question alike: yes where all say yes.

    A group of its own, on gloo: the question is asked between training steps, whatever the
    backend of the training. Making one is a collective call, as ``torch.distributed.new_group`` is: all
    ranks make their datasets in the same order.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._group: Any = None
        if ranks.world_size == 1:
            return
        if not (dist.is_available() and dist.is_initialized()):
            raise ArgumentError(
                f"replays in a range must be settled among world_size={ranks.world_size} ranks, which needs "
                f"torch.distributed to be initialised: do that first, or write replays as one int"
            )
        if dist.get_world_size() != ranks.world_size:
            raise ArgumentError(
                f"world_size={ranks.world_size}, but torch.distributed has {dist.get_world_size()} ranks: leave "
                f"rank and world_size out, or write replays as one int"
            )
        self._group = dist.new_group(backend="gloo")

    def all(self, answer: bool) -> bool:
        """Whether every rank's answer is yes."""
        if self._group is None:
            return answer
        flag = torch.tensor([int(answer)])
        dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=self._group)
        return bool(flag.item())
