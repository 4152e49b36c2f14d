"""An exception on its way from where it happened to the training loop."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import cloudpickle
import tblib.pickling_support

from superbatch.errors import SuperbatchError
from superbatch.redact import hide, hide_in


@dataclass(frozen=True)
class Failure:
    """An exception and its traceback, as bytes that any process can turn back.

    Examples
    --------
    >>> try:
    ...     1 / 0
    ... except ZeroDivisionError as error:
    ...     failure = Failure.of(error)
    >>> type(failure.error()).__name__
    'ZeroDivisionError'
    """

    pickled: bytes | None
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Keep an exception, its causes, its notes and its traceback; credentials in them are hidden."""
        hide_in(error)
        text = hide("".join(traceback.format_exception(error)))
        try:
            tblib.pickling_support.install(error)
            pickled = cloudpickle.dumps(error)
            cloudpickle.loads(pickled)
        except Exception:
            # Some exceptions cannot be pickled, or not turned back: their text still can.
            return cls(None, text)
        return cls(pickled, text)

    def error(self) -> BaseException:
        """The exception as it was; a ``SuperbatchError`` with its text where it cannot travel."""
        if self.pickled is not None:
            try:
                error = cloudpickle.loads(self.pickled)
            except Exception:
                error = None
            if isinstance(error, BaseException):
                return error
        return SuperbatchError(
            f"a loader failed with an exception that cannot travel:\n{self.text}"
        )
