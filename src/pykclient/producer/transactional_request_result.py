"""Transactional calls in progress, and their results (Java: TransactionalRequestResult)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import KafkaError
from pykclient.reentry import ensure_not_interrupting

if TYPE_CHECKING:
    from pykclient.clock import Clock, Signal
    from pykclient.producer.sender_thread import SenderThread

#: A waiting thread wakes the sender this often: a signal handler may have interrupted the thread that should have.
_LONGEST_WAIT_MS = 500


class TransactionalRequestResult:
    """The result of one transactional call, set once by the sender.

    ``operation`` is the call, such as ``"commit_transaction()"``. Setting the result again does nothing.

    Thread: any.
    """

    __slots__ = (
        "_clock",
        "_created_ms",
        "_thread",
        "_waiting",
        "completed",
        "completed_ms",
        "duration_ms",
        "error",
        "operation",
    )

    def __init__(self, operation: str, clock: Clock, thread: SenderThread) -> None:
        self.operation = operation
        #: The error that the call failed with; None if it succeeded or is still going on.
        self.error: Exception | None = None
        #: The time in milliseconds that the call took, and when it ended; 0 while it is going on.
        self.duration_ms = self.completed_ms = 0
        #: True once the result is set.
        self.completed = False
        self._clock = clock
        self._created_ms = clock.now_ms()
        self._thread = thread
        self._waiting: list[Signal] = []  # one for each thread in ``await_until``

    def done(self) -> None:
        """Set the result: the call succeeded."""
        self._complete(None)

    def fail(self, error: Exception) -> None:
        """Set the result: the call failed with ``error``."""
        self._complete(error)

    def _complete(self, error: Exception | None) -> None:
        if not self.completed:
            self.error = error
            self.completed_ms = self._clock.now_ms()
            self.duration_ms = self.completed_ms - self._created_ms
            # A waiting thread adds its signal before it reads ``completed``. So either its signal is found below, or
            # it sees that the result is set.
            self.completed = True
        for signal in [*self._waiting]:
            signal.set()

    def await_until(self, deadline_ms: int) -> bool:
        """Drive the sender, or wait for it, until the result is set; return False if ``deadline_ms`` came first.

        The caller has made sure that its thread may wait (``check_thread``).
        """
        driver = self._thread.driver
        if driver is not None and not self.completed:
            driver.drive(self, deadline_ms)
        if self.completed:
            return True
        clock = self._clock
        signal = clock.new_signal()
        try:
            self._waiting.append(signal)
            while not self.completed:
                remaining_ms = deadline_ms - clock.now_ms()
                if remaining_ms <= 0:
                    return False
                if not signal.wait(min(remaining_ms, _LONGEST_WAIT_MS)):
                    self._thread.wakeup()
        finally:
            self._waiting = [other for other in self._waiting if other is not signal]
        return True

    def check_thread(self) -> None:
        """Check that the current thread may wait for the sender.

        Raises:
            KafkaError: this is the sender's thread, which would wait for itself.
        """
        if self._thread.is_current:
            raise KafkaError(
                f"{self.operation} was called by a callback or a signal handler on the sender's thread: it would wait "
                "for itself. Call it on another thread"
            )
        ensure_not_interrupting(self.operation)


class PendingCall:
    """A call that changes the state; the sender begins it. Another call of the same kind waits for its result."""

    __slots__ = ("has_ended", "is_begun", "result")

    def __init__(self, result: TransactionalRequestResult) -> None:
        self.result = result
        self.is_begun = False
        self.has_ended = False  # the coordinator has ended the transaction, and only a new epoch is missing

    def fail(self, error: Exception) -> None:
        """Set the result: an error, unless the transaction has ended. Then only the next one cannot begin."""
        if self.has_ended:
            self.result.done()
        else:
            self.result.fail(error)
