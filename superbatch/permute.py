"""Permutations of any length that need no memory, and a scrambled low-discrepancy sequence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from superbatch.seeds import mix

_U64 = np.uint64
_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64: keeps the keys of the rounds apart


def permute(
    index: npt.NDArray[np.int64], size: npt.ArrayLike, key: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Where each index goes in a pseudo-random permutation of ``range(size)``.

    A Feistel network over the next even number of bits, walked until the value falls below ``size``
    (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Nothing is stored: the cost
    is that of the indices asked for, whatever ``size`` is.

    Parameters
    ----------
    index : int64 array, shape (n,)
        Values in ``[0, size)``.
    size : int or int array of shape (n,)
        Length of each index's own permutation, up to ``2**62``.
    key : int or uint64 array of shape (n,)
        Which permutation.

    Returns
    -------
    int64 array, shape (n,)
        For one ``size`` and ``key`` and all indices: a permutation of ``range(size)``.

    Examples
    --------
    >>> sorted(permute(np.arange(10), 10, key=7).tolist()) == list(range(10))
    True
    """
    values = np.asarray(index).astype(np.uint64)
    sizes = np.broadcast_to(np.asarray(size).astype(np.uint64), values.shape)
    keys = np.broadcast_to(np.asarray(key, dtype=np.uint64), values.shape)
    # Half of the number of bits that hold size - 1, rounded up, at least one. frexp is exact to
    # 2**53; above, rounding can only add a bit, which costs a few more walks.
    bits = np.frexp((np.maximum(sizes, _U64(2)) - _U64(1)).astype(np.float64))[1]
    half = np.maximum((bits + 1) // 2, 1).astype(np.uint64)
    out = _feistel(values, half, keys)
    todo = np.flatnonzero(out >= sizes)
    while todo.size:
        out[todo] = _feistel(out[todo], half[todo], keys[todo])
        todo = todo[out[todo] >= sizes[todo]]
    return out.astype(np.int64)


def _feistel(
    x: npt.NDArray[np.uint64], half: npt.NDArray[np.uint64], key: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    mask = (_U64(1) << half) - _U64(1)
    left, right = x >> half, x & mask
    with np.errstate(over="ignore"):
        for number in range(_ROUNDS):
            noise = mix(right + mix(key + _U64((number + 1) * _GOLDEN % 2**64)))
            left, right = right, left ^ (noise & mask)
    return (left << half) | right


def scrambled(index: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.uint64]:
    """Terms of a van der Corput sequence under Owen's nested scrambling, as 32-bit integers.

    Each term, taken alone, is uniform over the choice of ``key``. Terms taken together fill the
    range evenly: of ``2**k`` consecutive ones that start at a multiple of ``2**k``, one falls into
    each of ``2**k`` equal parts (Owen 1995, "Randomly permuted (t,m,s)-nets").

    Parameters
    ----------
    index : int64 array, shape (n,)
        Which terms, below ``2**32``.
    key : int
        Which scrambling.

    Returns
    -------
    uint64 array, shape (n,)
        Values in ``[0, 2**32)``.
    """
    n = np.asarray(index).astype(np.uint64)
    out = np.zeros_like(n)
    with np.errstate(over="ignore"):
        for bit in range(32):
            # The digit is flipped by a coin that depends on all the digits before it. The digit
            # itself is bit number `bit` of the index: that is van der Corput's reversal.
            digit = (n >> _U64(bit)) & _U64(1)
            coin = mix(out + _U64((key + (bit + 1) * _GOLDEN) % 2**64)) >> _U64(63)
            out = (out << _U64(1)) | (digit ^ coin)
    return out
