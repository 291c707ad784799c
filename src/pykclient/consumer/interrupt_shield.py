"""Ctrl-C at a moment when it does no harm.

Python raises KeyboardInterrupt between any two instructions: in the middle of a frame that is being written, or after a
position was moved past records and before these were returned. A consumer that is then closed would commit records that
nobody has seen. So while the main thread is inside of a consumer, Ctrl-C only ends the wait, and KeyboardInterrupt is
raised at the next point where everything is consistent, which is a matter of milliseconds.
"""

from __future__ import annotations

# The module that ``signal`` wraps, as that looks each handler up in an enum: a tenth of what a poll takes.
import _signal  # type: ignore[import-not-found]
import signal
from collections.abc import Callable
from types import FrameType, TracebackType

from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment


class InterruptShield:
    """A context manager, which may be entered again inside. Thread: application; elsewhere than in the main thread, and
    where the program handles SIGINT itself, it does nothing.

    A second Ctrl-C is raised at once: something inside, such as a rebalance listener, does not come to an end.
    """

    __slots__ = ("_depth", "_get_ident", "_in_main_thread", "_inside", "_wakeup", "pending")

    def __init__(self, wakeup: Callable[[], None], environment: Environment = SYSTEM_ENVIRONMENT) -> None:
        self._wakeup = wakeup
        self._in_main_thread = environment.in_main_thread
        self._get_ident = environment.get_ident
        self._inside: int | None = None  # the main thread, while it is
        self._depth = 0
        self.pending = False

    def __enter__(self) -> None:
        if self._depth:
            if self._get_ident() == self._inside:
                self._depth += 1
        elif self._in_main_thread() and _signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._inside = self._get_ident()
            _signal.signal(signal.SIGINT, self._handle)
            # From here on nothing is raised, so this cannot be missed. Before, there was nothing to undo.
            self._depth = 1

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if not self._depth or self._get_ident() != self._inside:
            return
        if self._depth > 1:
            self._depth -= 1
            return
        self._depth = 0
        _signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.pending:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed. To be called where everything is consistent."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt

    def _handle(self, signal_number: int, frame: FrameType | None) -> None:
        if self.pending:
            signal.default_int_handler(signal_number, frame)
        self.pending = True
        self._wakeup()
