"""The data module with a real Trainer, on one process and on two."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from tests.fields import field, write_plain

ROOT = Path(__file__).parents[1]
WIDTH = 5

SCRIPT = """
import json, sys, warnings
from pathlib import Path
import torch, zarr
warnings.simplefilter("ignore")
import lightning.pytorch as pl
import superbatch as sb
from superbatch.lightning import SuperbatchDataModule
from tests.fields import corners, field

folder, resume, devices = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
WHOLE = field((120, 6))


def source(low, high):
    stored = zarr.open_array(folder / "field.zarr", mode="r")
    window = {"field": sb.Window(stored, time=5)}
    return sb.ArchiveSource(
        window, samples=16, sequences=4, coverage="once", valid=[slice(low, high)]
    )


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = {"train": [], "validation": [], "test": []}

    def note(self, kind, batch):
        self.seen[kind].append(corners(batch["field"], WHOLE)[:, 0].tolist())
        return self.layer(batch["field"][:, 0, :1].float()).square().mean() * 0

    def training_step(self, batch, number):
        return self.note("train", batch)

    def validation_step(self, batch, number):
        self.note("validation", batch)

    def test_step(self, batch, number):
        self.note("test", batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


net = Net()
data = SuperbatchDataModule(
    train=lambda: source(0, 70),
    validation=lambda: source(70, 95),
    test=lambda: source(95, 120),
    batch_size=4,
    settings={"replays": 2, "timeout": 60},
    evaluation={"timeout": 60},
)
saved = pl.callbacks.ModelCheckpoint(
    folder, filename="{step}", every_n_train_steps=1, save_top_k=-1
)
trainer = pl.Trainer(
    accelerator="cpu",
    devices=devices,
    strategy="ddp" if devices > 1 else "auto",
    max_epochs=2,
    logger=False,
    num_sanity_val_steps=0,
    enable_progress_bar=False,
    enable_model_summary=False,
    use_distributed_sampler=False,
    default_root_dir=folder,
    callbacks=[] if resume != "none" else [saved],
)
trainer.fit(net, datamodule=data, ckpt_path=None if resume == "none" else folder / resume)
if resume == "none":
    trainer.test(net, datamodule=data, verbose=False)
(folder / f"seen-{resume}-{trainer.global_rank}.json").write_text(json.dumps(net.seen))
"""


def run(folder: Path, resume: str, devices: int) -> list[dict[str, list[list[int]]]]:
    """What each rank has seen."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, script, folder, resume, str(devices)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return [
        json.loads((folder / f"seen-{resume}-{rank}.json").read_text()) for rank in range(devices)
    ]


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("devices", [1, 2])
def test_periods_ranks_and_resume_in_the_middle_of_an_epoch(tmp_path, devices) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning.pytorch")
    write_plain(
        tmp_path / "field.zarr", field((120, 6)), chunks=(4, 6), dimension_names=("time", "x")
    )
    ranks = run(tmp_path, "none", devices)
    periods = {"train": (0, 70), "validation": (70, 95), "test": (95, 120)}
    for kind, (low, high) in periods.items():
        lengths = {len(rank[kind]) for rank in ranks}
        assert len(lengths) == 1, kind  # as many steps on each rank
        served = [start for rank in ranks for batch in rank[kind] for start in batch]
        times = {"train": 4, "validation": 2, "test": 1}[kind]  # epochs and replays
        missed = len(ranks) * 4  # ranks drop what would make their shares unequal
        assert set(served) <= set(range(low, high - WIDTH + 1))
        assert times * (high - low - WIDTH + 1 - missed) <= len(served)
    if devices == 2:  # in one epoch, no sample is on both
        half = len(ranks[0]["train"]) // 4  # the first pass over... both passes of each superbatch
        one, two = ({s for b in rank["train"][: 2 * half] for s in b} for rank in ranks)
        assert not one & two
    steps = len(ranks[0]["train"])
    for step in (3, steps // 2 + 5):  # in the middle of either epoch
        rest = run(tmp_path, f"step={step}.ckpt", devices)
        for before, after in zip(ranks, rest, strict=True):
            assert after["train"] == before["train"][step:], step


def test_a_source_that_is_missing_is_named() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning.pytorch")
        from superbatch.lightning import SuperbatchDataModule
    with pytest.raises(ValueError, match=r"no train source: write SuperbatchDataModule\(train="):
        SuperbatchDataModule().train_dataloader()
    assert SuperbatchDataModule().val_dataloader() == []
