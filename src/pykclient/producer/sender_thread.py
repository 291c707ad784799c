"""The sender's thread, as seen by code that must not wait there, or not for a thread that has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pykclient.errors import KafkaError


class SenderThread:
    """Says whether the current thread is the sender's, and why that has failed if it has. Thread: any."""

    __slots__ = ("_get_ident", "_ident", "failure", "killed_by", "wakeup")

    def __init__(
        self,
        get_ident: Callable[[], int] = threading.get_ident,
        killed_by: tuple[type[BaseException], ...] = (),
        wakeup: Callable[[], object] = bool,
    ) -> None:
        """``killed_by`` are exceptions that stand for the end of the process, after which nothing runs any more.

        ``wakeup`` ends the thread's wait for the network; by default it does nothing.
        """
        self.wakeup = wakeup
        self._get_ident = get_ident
        self._ident: int | None = None
        self.killed_by = killed_by
        #: What ended the thread, if it was not closed.
        self.failure: BaseException | None = None

    def begin(self) -> None:
        """The current thread is the sender's from now on."""
        self._ident = self._get_ident()

    def end(self) -> None:
        """The sender's thread ends. Its number may be given to another one."""
        self._ident = None

    @property
    def is_current(self) -> bool:
        """True on the sender's thread: in a callback, or in a ``__del__`` that the garbage collector runs there."""
        return self._ident is not None and self._get_ident() == self._ident

    def explain(self, error: KafkaError) -> KafkaError:
        """Return the error to raise for ``error``: another one if the thread has failed, which is the reason then."""
        failure = self.failure
        if failure is None:
            return error
        explained = KafkaError(
            f"the producer's I/O thread was ended by {failure!r}, which code of the application raised in it; "
            "nothing can be sent any more. Close the producer and make a new one"
        )
        explained.__cause__ = failure
        return explained

    def ensure_alive(self) -> None:
        """Raise KafkaError if the thread has failed."""
        if self.failure is not None:
            raise self.explain(KafkaError())
