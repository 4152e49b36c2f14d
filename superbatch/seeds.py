"""Random numbers that depend on coordinates alone, never on who draws them, or when.

Everything random in superbatch is a function of ``(seed, purpose, coordinates)``: which sequences a
superbatch is drawn from depends on ``(seed, "hits", epoch, rank)``, the windows inside on
``(seed, "windows", epoch, superbatch, rank)``, the order of a replay on
``(seed, "replay", epoch, superbatch, rank, pass)``. So the number of loaders, of threads and of
machines, and what was drawn before, change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The position in this tuple goes into the seed: append, never reorder.
PURPOSES = (
    "hits",
    "windows",
    "rows",
    "replay",
    "visits",
    "items",
    "retry",
    "inspect",
    "noise",
    "reservoir",
)

_U64 = np.uint64


def generator(seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
    """A generator for one purpose at one place of the run.

    Parameters
    ----------
    seed : int
        The user's seed, non-negative.
    purpose : str
        One of ``PURPOSES``; different purposes never share numbers.
    *coordinates : int
        Where in the run: epoch, superbatch, rank, pass; non-negative.

    Returns
    -------
    numpy.random.Generator
        Philox, keyed through ``SeedSequence``, whose hash keeps neighbouring coordinates apart
        (NumPy, "Parallel random number generation").

    Examples
    --------
    >>> int(generator(0, "hits", 3, 1).integers(100)) == int(generator(0, "hits", 3, 1).integers(100))
    True
    """
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, coordinates)))


def key(seed: int, purpose: str, *coordinates: int) -> int:
    """One 64-bit key for the hashes below, derived as :func:`generator` derives its state."""
    return int(_sequence(seed, purpose, coordinates).generate_state(1, np.uint64)[0])


def apart(noise: npt.NDArray[np.float64], lane: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) out of others, independent of those of every other ``lane``; 1 stays 1."""
    bits = (noise * 2.0**53).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = mix(mix(bits) + mix(np.array([lane], dtype=np.uint64)))
    return np.where(noise < 1, (mixed >> _U64(11)).astype(np.float64) * 2.0**-53, 1.0)


def _sequence(seed: int, purpose: str, coordinates: Sequence[int]) -> np.random.SeedSequence:
    # The coordinates go into the spawn key: in the entropy a seed beyond 32 bits would run into
    # them, and zeros at the end would not count.
    return np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose), *coordinates))


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A 64-bit hash, element by element: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return x ^ (x >> _U64(31))
