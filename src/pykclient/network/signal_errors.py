"""Exceptions of signal handlers, told apart from those of connections.

CPython runs signal handlers on the main thread, between any two instructions. The usual way to limit the time of a call
is an alarm whose handler raises TimeoutError, which is an OSError. So code that takes an OSError for the end of a
connection, or goes on after any exception, would lose it now and then, and the call would never end.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from types import CodeType, TracebackType
from typing import Any


def raise_if_of_signal_handler(error: BaseException) -> None:
    """Raise the exception that ``error`` is, or was raised from, if a signal handler of Python has raised that."""
    if threading.current_thread() is not threading.main_thread():
        return
    handlers = _handlers()
    cause: BaseException | None = error
    while handlers and cause is not None:
        traceback = cause.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code in handlers:
                raise cause
            traceback = traceback.tb_next
        cause = cause.__cause__


def _handlers() -> set[CodeType]:
    """Return the code of all signal handlers of this process."""
    import signal  # only where an error has occurred

    return {
        code
        for number in signal.valid_signals()
        if callable(handler := signal.getsignal(number)) and (code := _code_of(handler)) is not None
    }


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    for function in (handler, vars(type(handler)).get("__call__")):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


class SuppressOSErrors(contextlib.AbstractContextManager[None]):
    """Suppresses each OSError of the block, except for that of a signal handler."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, OSError):
            return False
        raise_if_of_signal_handler(error)
        return True
