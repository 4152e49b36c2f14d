"""What an inspection found, as a table and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOO_LITTLE = "not measured: there is too little to read"


@dataclass
class Inspection:
    """What was found.

    Attributes
    ----------
    facts : dict
        Of the store and the windows, and what was measured. None stands for what could not be.
    settings : dict
        ``samples``, ``sequences``, ``chunks_per_sequence``, ``batch_size``.
    expected : dict
        Fresh samples a second, memory.
    quality : Quality
    warnings : list of str
    """

    facts: dict[str, Any]
    settings: dict[str, Any]
    expected: dict[str, Any]
    quality: Any
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "facts": self.facts,
            "settings": self.settings,
            "expected": self.expected,
            "quality": self.quality.as_dict(),
            "warnings": self.warnings,
        }

    def __str__(self) -> str:
        lines = []
        for title, entries in (
            ("store", self.facts),
            ("settings", self.settings),
            ("to expect", self.expected),
        ):
            lines.append(title)
            lines += [f"  {name:<34} {spell(name, value)}" for name, value in entries.items()]
        lines += ["shuffle", *(f"  {line}" for line in str(self.quality).splitlines())]
        lines += [f"note: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def spell(name: str, value: Any) -> str:
    """One value of a table, with its unit."""
    if value is None:
        return "none" if name == "shards" else TOO_LITTLE
    if name.endswith(("bytes", "bytes_per_sample", "measured_on")):
        return size(value)
    if name.endswith("bytes_per_second"):
        return f"{size(value)}/s on all cores"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return str(value)


def size(value: float) -> str:
    """Bytes, for people.

    Examples
    --------
    >>> size(6_560_000), size(12)
    ('6.56 MB', '12 bytes')
    """
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= least:
            return f"{value / least:.3g} {unit}"
    return f"{value:.0f} bytes"
