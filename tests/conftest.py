"""Settings of the tests as a whole, and the sums at their end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import zarr
from hypothesis import HealthCheck, settings

from tests import tally

# The same examples on every run. To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")

# What a shell starts in the background ignores Ctrl-C, and so would all that tests start from here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where each test injects a fault.
_FAULTS = ("tests/faults/", "tests/test_supervise.py", "tests/test_transport.py")


@pytest.fixture(autouse=True)
def _codec_pipeline() -> Iterator[None]:
    """What fills slots in the tests' own process chooses its pipeline; other tests compare with Zarr's."""
    chosen = zarr.config.get("codec_pipeline.path")
    yield
    zarr.config.set({"codec_pipeline.path": chosen})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of what was tried."""
    passed = [r.nodeid for r in terminalreporter.getreports("passed") if r.when == "call"]
    lines = tally.lines(sum(name.startswith(_FAULTS) for name in passed))
    if lines:
        terminalreporter.section("faults and bad inputs")
        for line in lines:
            terminalreporter.line(line)
