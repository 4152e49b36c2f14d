"""Permutations of any length that need no memory, and a scrambled low-discrepancy sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from superbatch.seeds import mix

Bits = npt.NDArray[np.uint64]

_U64 = np.uint64
_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64: keeps the keys of the rounds apart


def permute(
    index: npt.NDArray[np.int64], size: npt.ArrayLike, key: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Where each index goes in a pseudo-random permutation of ``range(size)``.

    A Feistel network over the bits that ``size`` needs, walked until the value falls below it: less
    than twice, on average (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Nothing
    is stored: the cost is that of the indices asked for, whatever ``size`` is.

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
    # Bits that hold size - 1, two at least. frexp is exact to 2**53; above, rounding can only add
    # a bit, which costs a few more walks.
    bits = np.frexp((np.maximum(sizes, _U64(4)) - _U64(1)).astype(np.float64))[1]
    low = (bits // 2).astype(np.uint64)
    high = bits.astype(np.uint64) - low
    # A constant for each round and index; those of one key are the same.
    distinct, which = np.unique(keys, return_inverse=True)
    rounds = [mix(distinct + _U64((n + 1) * _GOLDEN % 2**64))[which] for n in range(_ROUNDS)]
    out = _feistel(values, low, high, rounds)
    todo = np.flatnonzero(out >= sizes)
    while todo.size:
        out[todo] = _feistel(out[todo], low[todo], high[todo], [r[todo] for r in rounds])
        todo = todo[out[todo] >= sizes[todo]]
    return out.astype(np.int64)


def _feistel(x: Bits, low: Bits, high: Bits, rounds: Sequence[Bits]) -> Bits:
    """A permutation of ``range(2**(low + high))``."""
    left, right = x >> low, x & ((_U64(1) << low) - _U64(1))
    # The halves change places in each round, and their numbers of bits with them.
    masks = [(_U64(1) << high) - _U64(1), (_U64(1) << low) - _U64(1)]
    for number, key in enumerate(rounds):
        left, right = right, left ^ (mix(right + key) & masks[number % 2])
    return (left << low) | right


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
