"""Windows copied by runs of bytes, against slicing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from superbatch.archive.gather import copy_windows


@given(st.data(), st.sampled_from(["i1", "i2", "f4", "f8", "?", "c16"]))
def test_windows_are_what_slices_are(data, dtype) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    size = tuple(data.draw(st.integers(1, n)) for n in shape)
    count = data.draw(st.integers(0, 5))
    corners = np.array(
        [
            [data.draw(st.integers(0, n - k)) for n, k in zip(shape, size, strict=True)]
            for _ in range(count)
        ],
        dtype=np.int64,
    ).reshape(count, len(shape))
    rows = np.array(data.draw(st.permutations(range(count + 2))), dtype=np.int64)[:count]
    block = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    kept = tuple(n for n in size if n > 1)  # dimensions of one may be left out of a sample
    out = np.zeros((count + 2, *kept), dtype)
    expected = out.copy()
    copy_windows(block, corners, size, rows, out)
    for row, corner in zip(rows, corners, strict=True):
        window = block[tuple(slice(a, a + n) for a, n in zip(corner, size, strict=True))]
        expected[row] = window.reshape(kept)
    np.testing.assert_array_equal(out, expected)
