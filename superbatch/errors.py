"""Errors that superbatch raises on its own account."""

from __future__ import annotations


class SuperbatchError(RuntimeError):
    """Base of every error that superbatch raises on its own account.

    Wrong arguments raise :class:`ValueError` or :class:`TypeError` where Python users expect them;
    :class:`ArgumentError` is both a ``ValueError`` and a ``SuperbatchError``. What a user's own
    function raises in a loader (``transform``, ``reject``), and what a store raises, arrives as it was.
    """


class ArgumentError(SuperbatchError, ValueError):
    """An argument, or a combination of arguments, that cannot work."""


class LoaderDied(SuperbatchError):
    """A loader process ended without having said why: killed, out of memory, crashed."""


class LoaderTimeout(SuperbatchError):
    """A loader did not deliver within ``timeout`` seconds."""


def shown(value: object) -> str:
    """A value for an error of one sentence: on one line, and no longer than it takes to recognise it.

    Examples
    --------
    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]}..."
