"""One of several ranks that train together; run by test_ranks.py in a process of its own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import zarr
from torch.nn.parallel import DistributedDataParallel

import superbatch as sb
from tests.fields import corners, field

SHAPE = (104, 3)
WIDTH = 5
WINDOWS = SHAPE[0] - WIDTH + 1  # 100


def train(dataset, pause=0.0):
    """One epoch of DDP training: the starts of every batch, and the loss of the last."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH * SHAPE[1], 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-9)
    whole = field(SHAPE)
    starts = []
    for batch in dataset:
        starts.append(corners(batch["field"], whole)[:, 0].tolist())
        optimiser.zero_grad()
        model(batch["field"].flatten(1).float()).square().mean().backward()  # waits for all ranks
        optimiser.step()
        time.sleep(pause)  # a rank whose training step is slower than that of the others
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return {"starts": starts, "weights": weights.tolist()}


def main(rank: int, world_size: int, folder: Path, dask: str | None = None) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world_size
    )
    stored = zarr.open_array(folder / "field.zarr", mode="r")
    window = {"field": sb.Window(stored, time=WIDTH)}
    found = {}
    once = sb.ArchiveSource(window, samples=24, sequences=4, coverage="once")
    with sb.SuperbatchDataset(once, 4, replays=2, seed=1, timeout=60, dask=dask) as dataset:
        found["length"] = len(dataset)
        found["once"] = train(dataset, pause=0.001 * rank)
        found["next epoch"] = train(dataset)
    if dask is None:
        found |= ranges(rank, world_size, window)
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def ranges(rank: int, world_size: int, window: dict[str, sb.Window]) -> dict[str, object]:
    """Ranges of replays, which the ranks settle among them, with loaders and steps of different speed."""
    found: dict[str, object] = {}

    def slow(sample):
        time.sleep(0.002 * rank)
        return sample

    endless = sb.ArchiveSource(window, samples=24, sequences=4, transform=slow)
    with sb.SuperbatchDataset(
        endless, 4, replays=(1, 4), batches_per_epoch=61, seed=1, timeout=60
    ) as dataset:
        found["range"] = train(dataset, pause=0.001 * rank)
        stats = dataset.stats()
        found["passes"] = [stats.passes, stats.superbatches, stats.iterations]
    if world_size == 2:
        ranged = sb.ArchiveSource(window, samples=24, sequences=4, coverage="once", transform=slow)
        with sb.SuperbatchDataset(ranged, 4, replays=(1, 4), seed=1, timeout=60) as dataset:
            found["once, range"] = train(dataset)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
