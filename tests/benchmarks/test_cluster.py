"""What a cluster costs is measured on one that is really there."""

from __future__ import annotations

import superbatch as sb
from benchmarks import cluster, workloads
from tests.fields import field, write_plain


def test_each_role_has_its_share(tmp_path) -> None:
    whole = field((400, 16, 16))
    stored = write_plain(
        tmp_path / "a.zarr", whole, chunks=(10, 16, 16), dimension_names=("time", "y", "x")
    )
    window = {"a": sb.Window(stored, time=2, y=8, x=8)}
    source = sb.ArchiveSource(window, samples=256, sequences=8, chunks_per_sequence=2)
    found = cluster.measure(source, batch_size=16, superbatches=3, workers=2)
    assert found["window_bytes"] == 3 * 256 * 2 * 8 * 8 * 4
    # windows that are shared by a border are decoded twice on a cluster; no more than all sequences
    assert 0 < found["decoded_bytes"] <= found["sequences"] * 4 * 10 * 16 * 16 * 4
    for role in ("scheduler", "worker", "loader"):
        assert found[f"{role}_seconds"] > 0
    found["samples"] = 3 * 256
    assert "scheduler, CPU ms for a sequence" in cluster.table(found, found)


def test_the_long_archive_has_room_for_many_sequences() -> None:
    assert workloads.length(100).sizes["time"] // 36 > 4 * 512
