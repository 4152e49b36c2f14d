"""Errors show no credentials, wherever they were raised."""

from __future__ import annotations

import string
import traceback

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import superbatch as sb
from superbatch.redact import hide, hide_in

words = st.text(string.ascii_letters + string.digits + "!$*+-._~", min_size=3, max_size=12).map(
    lambda text: f"Zq{text}9"
)


@given(words, words, st.sampled_from(["https", "s3", "redis", "rediss", "abfs", "ftp"]))
def test_user_and_password_of_a_url_are_hidden(user, password, scheme) -> None:
    text = f"cannot open {scheme}://{user}:{password}@host:9000/a/b.zarr: no such key"
    assert hide(text) == f"cannot open {scheme}://***@host:9000/a/b.zarr: no such key"


@given(
    words,
    st.sampled_from(
        [
            "https://host/a.zarr/c/0?X-Amz-Signature={}&partNumber=1",
            "https://host/a.zarr/c/0?X-Amz-Security-Token={}",
            "https://host/a.zarr/c/0?sv=2020&sig={}&se=2021",
            "https://host/a?AWSAccessKeyId={}",
            "{{'anon': False, 'secret': '{}'}}",
            "aws_secret_access_key={}",
            'storage_options={{"token": "{}"}}',
            "password: {}",
        ]
    ),
)
def test_what_signs_a_request_is_hidden(secret, text) -> None:
    assert secret not in hide(text.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        "chunk c/7/0 of s3://bucket/field.zarr",
        "time=4 is longer than the array's 3: shorten it",
        "tcp://127.0.0.1:8786 does not answer",
        "someone@example.com",
        "KeyError: 'sequence'",
    ],
)
def test_other_text_stays(text) -> None:
    assert hide(text) == text


def test_causes_notes_groups_and_file_names_are_searched() -> None:
    secret = "s3://me:hunter2@bucket/a.zarr"
    inner = FileNotFoundError(2, "no such file", secret)
    outer = ExceptionGroup("several", [ValueError(secret), OSError(secret)])
    outer.__cause__ = inner
    outer.add_note(f"in {secret}")
    inner.__context__ = outer  # a circle ends
    hide_in(outer)
    assert "hunter2" not in "".join(traceback.format_exception(outer))
    assert "hunter2" not in str(inner)


def test_an_error_out_of_a_loader_shows_no_password() -> None:
    field = xr.DataArray(np.zeros((40, 3), "f4"), dims=("time", "x"))
    calls = []

    def transform(sample):
        calls.append(1)
        if len(calls) > 1:  # not the first one, which is made in the constructor
            raise OSError("cannot read https://me:hunter2@host/labels.csv?token=hunter2")
        return sample

    source = sb.ArchiveSource({"field": sb.Window(field, time=4)}, samples=8, transform=transform)
    with (
        sb.SuperbatchDataset(source, 4, timeout=60) as dataset,
        pytest.raises(OSError, match=r"https://\*\*\*@host/labels.csv") as caught,
    ):
        next(iter(dataset))
    shown = "".join(traceback.format_exception(caught.value))
    # The line of code that raised it is the user's own, and is shown.
    assert "hunter2" not in str(caught.value)
    assert "OSError: cannot read https://***@host/labels.csv?token=***" in shown
