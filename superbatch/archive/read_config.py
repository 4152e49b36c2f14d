"""Settings of a process that reads: codec pipeline, threads, memory that is kept."""

from __future__ import annotations

import importlib.util

import zarr


def configure(threads: int) -> None:
    """Prepare this process for reading; a loader calls it once, before its first read.

    Parameters
    ----------
    threads : int
        How many threads will call :meth:`Array.read` at the same time. Each decodes on its own, so
        the pipeline behind it gets no more than one thread a call.
    """
    settings: dict[str, int | str] = {
        "threading.max_workers": threads,
        "codec_pipeline.chunk_concurrent_maximum": 1,
    }
    if importlib.util.find_spec("zarrs") is not None:
        settings["codec_pipeline.path"] = "zarrs.ZarrsCodecPipeline"
    zarr.config.set(settings)
