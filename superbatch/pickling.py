"""Pickling what a script defines, by value, for a process that does not import the script."""

from __future__ import annotations

import io
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle


def _reduce_code(code: types.CodeType) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    make, arguments = cloudpickle.CloudPickler.dispatch_table[types.CodeType](code)
    return _make_code, (code.co_filename, make, arguments)


def _make_code(
    filename: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]
) -> types.CodeType:
    return make(*arguments).replace(co_filename=filename)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """A CloudPickler that keeps the names of files.

    cloudpickle calls every file ``<dynamic-code>``, so that equal functions have equal pickles. Nothing
    here compares pickles, and a traceback has to show the user's own lines.
    """

    dispatch_table: ClassVar[Any] = ChainMap(
        {types.CodeType: _reduce_code}, cloudpickle.CloudPickler.dispatch_table
    )


def dumps(thing: Any) -> bytes:
    """The pickle of anything: functions and classes of a script, or inside of functions, by value.

    Examples
    --------
    >>> import pickle
    >>> twice = pickle.loads(dumps(lambda x: 2 * x))
    >>> twice(3)
    6
    """
    with io.BytesIO() as file:
        _Pickler(file).dump(thing)
        return file.getvalue()
