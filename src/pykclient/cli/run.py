"""Run a command: which way its words are read, what its errors look like, and its exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from pykclient.cli import quick
from pykclient.cli.problems import (
    Interrupted,
    ReaderGoneError,
    UsageError,
    explained,
    is_bad_input,
    own_errors,
)
from pykclient.cli.session import Session
from pykclient.errors import KafkaError

_NEEDS_EXTRA: Final = "pykclient: the command line needs {module}; install it with: pip install 'pykclient[cli]'\n"

#: The signals of process managers and closed terminals, which end a command as Ctrl-C does.
_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, report its error on stderr, and return the exit code."""
    session = Session()
    with _logging(session), _ended_by_signals() as received:
        try:
            code = _run(arguments, session)
            sys.stdout.flush()
        except (Interrupted, KeyboardInterrupt):
            return 128 + (received[0] if received else signal.SIGINT)
        except (ReaderGoneError, BrokenPipeError):
            _forget_output()
            return 141
        except (KafkaError, OSError, ImportError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name in {"click", "rich"}:
                sys.stderr.write(_NEEDS_EXTRA.format(module=error.name))
                return 2
            if session.is_debug:
                raise
            sys.stderr.write(f"pykclient: {explained(error)}\n")
            return 2 if is_bad_input(error) else 1
        return code


def _run(arguments: Sequence[str] | None, session: Session) -> int:
    plain = quick.plain(sys.argv[1:] if arguments is None else arguments)
    if plain is None:
        from pykclient.cli import app

        return app.run(arguments, session)
    try:
        with own_errors():
            plain.run(session)
    except UsageError as error:
        if session.is_debug:
            raise
        from pykclient.cli import app

        return app.show_usage_error(plain.name, str(error))
    return 0


def _forget_output() -> None:
    """Send what is still buffered for the closed pipe nowhere, so that the interpreter's last flush succeeds."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is no file
        sys.stdout = None


@contextmanager
def _ended_by_signals() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does at that moment; yield the list of those that were received.

    A signal that is ignored, as SIGHUP under nohup, or that the program handles itself, is left alone. Only the main
    thread can do this.
    """
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        on_ctrl_c = signal.getsignal(signal.SIGINT)
        # A shell without job control starts commands in the background with SIGINT ignored.
        (on_ctrl_c if callable(on_ctrl_c) else signal.default_int_handler)(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    taken = [number for number in _ENDING if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, on_signal)
    try:
        yield received
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _logging(session: Session) -> Iterator[None]:
    """Show the library's warnings on stderr, more of them with ``--verbose`` and ``--debug``."""
    logger = logging.getLogger("pykclient")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("pykclient: %(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    session.on_level = logger.setLevel
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
