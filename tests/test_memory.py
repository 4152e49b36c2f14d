"""Numbers of bytes as people write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superbatch.errors import ArgumentError
from superbatch.memory import oom_kills, parse_bytes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8GB", 8_000_000_000),
        ("8 gb", 8_000_000_000),
        (" 512 MiB ", 512 * 2**20),
        ("1.5K", 1500),
        ("2T", 2 * 10**12),
        ("7", 7),
        ("7B", 7),
        (12, 12),
    ],
)
def test_what_is_understood(text, number) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "GB",
        "-1GB",
        "0",
        0,
        -5,
        "1e9",
        "8 G B",
        "8XB",
        "0.1",
        "9" * 400,
        True,
        None,
        [8],
        "1,5GB",
    ],
)
def test_what_is_not(wrong) -> None:
    with pytest.raises(ArgumentError, match='write one such as "8GB"') as caught:
        parse_bytes(wrong)
    assert len(str(caught.value)) < 300


@given(st.text())
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    with contextlib.suppress(ArgumentError):
        assert parse_bytes(text) > 0


@given(st.integers(1, 10**15))
def test_a_whole_number_is_itself(number: int) -> None:
    assert parse_bytes(number) == parse_bytes(str(number)) == number


def test_the_kernel_counts_its_kills() -> None:
    assert oom_kills() >= 0
