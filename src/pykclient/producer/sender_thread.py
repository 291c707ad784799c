"""The identity and the failure of the sender's thread.

Some code must not block on the sender's thread, and none may wait for a thread that has failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pykclient.errors import KafkaError


class SenderThread:
    """Tells whether the current thread is the sender's, and why the sender's thread has failed. Thread: any."""

    __slots__ = ("_get_ident", "_ident", "failure", "killed_by", "wakeup")

    def __init__(
        self,
        get_ident: Callable[[], int] = threading.get_ident,
        killed_by: tuple[type[BaseException], ...] = (),
        wakeup: Callable[[], object] = bool,
    ) -> None:
        """Create it for a thread that has not started.

        ``killed_by`` are exceptions that stand for the end of the process: after one of them no code runs. ``wakeup``
        ends the thread's wait for the network; by default it does nothing.
        """
        self.wakeup = wakeup
        self._get_ident = get_ident
        self._ident: int | None = None
        self.killed_by = killed_by
        #: The exception that ended the thread; None if it is running or was closed.
        self.failure: BaseException | None = None

    def begin(self) -> None:
        """Make the current thread the sender's."""
        self._ident = self._get_ident()

    def end(self) -> None:
        """Forget the sender's thread, which is ending: the system may reuse its identifier."""
        self._ident = None

    @property
    def is_current(self) -> bool:
        """True on the sender's thread, in a callback or in a ``__del__`` that the garbage collector runs there."""
        return self._ident is not None and self._get_ident() == self._ident

    def explain(self, error: KafkaError) -> KafkaError:
        """Return the error to raise: the failure of the thread if it has failed, else ``error``."""
        failure = self.failure
        if failure is None:
            return error
        explained = KafkaError(
            f"the producer's I/O thread ended because application code raised {failure!r} in it, so it can send no "
            "more records. Close the producer and create a new one"
        )
        explained.__cause__ = failure
        return explained

    def ensure_alive(self) -> None:
        """Raise the failure of the thread, if it has failed.

        Raises:
            KafkaError: the thread has failed.
        """
        if self.failure is not None:
            raise self.explain(KafkaError())
