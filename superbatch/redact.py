"""Keeps passwords and keys out of errors: a store's URL may hold them, and libraries show it."""

from __future__ import annotations

import re

_HIDDEN = "***"
# user:password@ of a URL
_USER = re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE)
# What signed URLs and storage options of the common object stores call their secrets.
_SECRET = re.compile(
    r"((?:x-amz-(?:signature|credential|security-token)|awsaccesskeyid|access_key(?:_id)?|"
    r"[\w-]*(?:secret|password|passwd|token|signature|api_?key|account_key)[\w-]*|[?&]sig|[?&]key)"
    r"['\"]?\s*[:=]\s*['\"]?)[^&\s'\",;)}\]]+",
    re.IGNORECASE,
)


def hide(text: str) -> str:
    """The text without what looks like a credential.

    Examples
    --------
    >>> hide("cannot open https://me:pa55@host/store.zarr?X-Amz-Signature=abc&part=1")
    'cannot open https://***@host/store.zarr?X-Amz-Signature=***&part=1'
    >>> hide("storage_options={'key': 'a', 'secret': 'b'}")
    "storage_options={'key': 'a', 'secret': '***'}"
    """
    return _SECRET.sub(rf"\g<1>{_HIDDEN}", _USER.sub(rf"\g<1>{_HIDDEN}@", text))


def hide_in(error: BaseException) -> None:
    """Hide credentials in an exception's arguments and notes, and in those of its causes, in place."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        args = tuple(hide(a) if isinstance(a, str) else a for a in one.args)
        if args != one.args:
            one.args = args
        notes = getattr(one, "__notes__", None)
        if notes:
            one.__notes__ = [hide(note) for note in notes]
        for name in ("filename", "filename2"):
            if isinstance(one, OSError) and isinstance(getattr(one, name), str):
                setattr(one, name, hide(getattr(one, name)))
