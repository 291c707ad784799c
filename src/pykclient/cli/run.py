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
from typing import Final, TextIO

from pykclient.cli import quick
from pykclient.cli.problems import Interrupted, ReaderGoneError, UsageError, explained, is_bad_input, own_errors
from pykclient.cli.session import Session
from pykclient.errors import KafkaError

_NEEDS_EXTRA: Final = "pykclient: the command line needs {module}; install it with: pip install 'pykclient[cli]'\n"

#: The signals of process managers and closed terminals, which end a command as Ctrl-C does.
_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, report its error on stderr, and return the exit code."""
    session = Session()
    with _logging(session) as held, _ended_by_signals() as received:
        try:
            code = _run(arguments, session)
            sys.stdout.flush()
        except (Interrupted, KeyboardInterrupt):
            return 128 + (received[0] if received else signal.SIGINT)
        except (ReaderGoneError, BrokenPipeError):
            _forget_output()
            return 141
        except (KafkaError, OSError, ImportError) as error:
            held.drop()  # the error tells why
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


class _HoldingHandler(logging.StreamHandler[TextIO]):
    """Shows log records on stderr, but those about connections only if the command continues or succeeds.

    An error that ends the command has the same in its text. It ends after the time limit of a call at the latest, so
    the records are held for that long. Thread: any.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._held: list[logging.LogRecord] | None = []  # guarded by self.lock
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._held is None or record.levelno != logging.WARNING or not record.name.startswith("pykclient.network."):
            super().emit(record)
            return
        self._held.append(record)
        if self._timer is None:
            self._timer = threading.Timer(self._session.timeout_ms / 1000 + 2, self.show)
            self._timer.daemon = True
            self._timer.start()

    def show(self) -> None:
        """Show the records that are held, and later ones at once."""
        self.acquire()
        try:
            held, self._held = self._held or [], None
            for record in held:
                super().emit(record)
        finally:
            self.release()

    def drop(self) -> None:
        """Forget the records that are held."""
        self.acquire()
        try:
            if self._held is not None:
                self._held = []
        finally:
            self.release()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.show()
        super().close()


@contextmanager
def _logging(session: Session) -> Iterator[_HoldingHandler]:
    """Show the library's warnings on stderr, more of them with ``--verbose`` and ``--debug``."""
    logger = logging.getLogger("pykclient")
    handler = _HoldingHandler(session)
    handler.setFormatter(logging.Formatter("pykclient: %(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    session.on_level = lambda level: _show_more(logger, handler, level)
    logger.setLevel(logging.WARNING)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.level, logger.propagate = before


def _show_more(logger: logging.Logger, handler: _HoldingHandler, level: int) -> None:
    logger.setLevel(level)
    if level < logging.WARNING:
        handler.show()
