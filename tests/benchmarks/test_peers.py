"""Peers serve right values; their own workers are left out here, but for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.contest import Contestant
from benchmarks.peers import ANCHOR, check_batch
from benchmarks.workloads import Workload


def _peer(name: str) -> Any:
    try:
        return peers.load(name)
    except ImportError as error:
        pytest.skip(f"needs the extra 'bench': {error}")


MAP_STYLE = {
    "in_memory": ("InMemory", None),
    "tensorstore_map": ("TensorStoreDataset", "tensorstore"),
    "zarrs_map": ("ZarrsDataset", "zarrs"),
    "xbatcher_map": ("PatchDataset", "xbatcher"),
}


@pytest.mark.usefixtures("zarr_settings")
@pytest.mark.parametrize("name", MAP_STYLE)
def test_map_style_peers_read_what_is_stored(name: str, workload: Workload, store: Path) -> None:
    kind, package = MAP_STYLE[name]
    if package is not None:
        pytest.importorskip(package, reason=f"needs {package} of the extra 'bench'")
    peer = _peer(name)
    if reason := peer.cannot(workload):
        assert "one patch size" in reason
        assert workload.name in ("w2", "w3")
        return
    dataset = getattr(peer, kind)(workload, store)
    indices = np.random.default_rng(1).choice(len(dataset), workload.batch_size, replace=False)
    batch = dataset.__getitems__(indices.tolist())
    assert check_batch(batch, workload, store) == workload.batch_size


@pytest.mark.usefixtures("zarr_settings")
def test_blocks_are_cut_right_and_fetched_together(workload: Workload, store: Path) -> None:
    pytest.importorskip("scdataset", reason="needs scdataset of the extra 'bench'")
    from scdataset import BlockShuffling, scDataset

    blocks = _peer("scdataset_blocks")
    windows = blocks.Windows(workload, store)
    block = blocks.equally_diverse_block(windows)
    allowed = workload.superbatch_decoded_bytes / workload.samples
    assert windows.decoded_bytes_per_sample(block) <= allowed or block >= blocks.LARGEST_BLOCK
    dataset = scDataset(
        windows,
        BlockShuffling(block_size=block, drop_last=True),
        batch_size=workload.batch_size,
        fetch_factor=2,
        fetch_callback=blocks.Fetch(block),
        batch_callback=blocks.pick,
        seed=0,
    )
    batches = iter(dataset)
    for _ in range(2):
        check_batch(next(batches), workload, store)


def test_the_lazy_design_draws_inside_its_sequences(workload: Workload) -> None:
    lazy = _peer("lazy_selections")
    anchors = lazy._draw(workload, seed=5)
    per = workload.samples // workload.sequences
    assert len(anchors) == per * workload.sequences
    for k, box in enumerate(workload.sequence_boxes(5)):
        for anchor in anchors[k * per : k * per + 3]:
            for a in workload.arrays:
                for w, b in zip(workload.indices(anchor)[a.name], box[a.name], strict=True):
                    assert b.start <= w.start
                    assert w.stop <= b.stop


@pytest.mark.parametrize("workload", ["w3"], indirect=True)
def test_a_peer_takes_part(workload: Workload, store: Path) -> None:
    contestant = Contestant(
        "lazy", peers.PeerEntrant, "lazy_selections", workload, store, 2, timeout=60
    )
    try:
        assert contestant.turn("check") == workload.batch_size
        taken = contestant.turn("fresh", seconds=0.1)
    finally:
        contestant.close()
    cycle = workload.samples // workload.sequences * workload.sequences
    assert taken["samples"] % cycle == 0
    assert taken["samples"] > 0
    assert taken["seconds"] >= 0.1


@pytest.mark.usefixtures("zarr_settings")
def test_a_wrong_value_is_found(workload: Workload, store: Path) -> None:
    batch = (
        _peer("in_memory").InMemory(workload, store).__getitems__(list(range(workload.batch_size)))
    )
    name = workload.arrays[-1].name
    batch[name][-1].view(-1)[-1] += 1
    with pytest.raises(ValueError, match=f"{name} is wrong at anchor"):
        check_batch(batch, workload, store)
    batch[name][-1].view(-1)[-1] -= 1
    check_batch(batch, workload, store)
    batch[ANCHOR] = batch[ANCHOR][1:]
    with pytest.raises(ValueError, match="anchors have shape"):
        check_batch(batch, workload, store)
