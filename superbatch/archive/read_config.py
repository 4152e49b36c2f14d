"""Settings of a process that reads: codec pipeline, threads, memory that is kept."""

from __future__ import annotations

import ctypes
import importlib.util
import sys

import numcodecs.blosc  # type: ignore[import-untyped]
import zarr

# Parameters of glibc's mallopt(3), from malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MIB = 1 << 20


def configure(threads: int) -> None:
    """Prepare this process for reading; a loader calls it once, before its first read.

    Parameters
    ----------
    threads : int
        How many threads will call :meth:`Array.read` at the same time. Each decodes what it reads,
        so no codec gets threads of its own beyond these.
    """
    settings: dict[str, int | str] = {"threading.max_workers": threads}
    if importlib.util.find_spec("zarrs") is not None:
        settings["codec_pipeline.path"] = "zarrs.ZarrsCodecPipeline"
    zarr.config.set(settings)
    numcodecs.blosc.use_threads = False
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Have glibc keep memory that is freed, rather than return it and fault it in again.

    A decompression context, and the arrays that Zarr's own pipeline makes for each chunk, are
    above the size that malloc asks the system for each time. Touching such memory for the first
    time takes longer than decoding a small chunk into it. The threshold is the largest that glibc
    takes.

    Returns
    -------
    bool
        Whether it was set: not where the C library is another.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)) and bool(
        mallopt(_M_TRIM_THRESHOLD, 256 * _MIB)
    )
