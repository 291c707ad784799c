"""Threads that share a consumer take turns, as librdkafka's consumers may be called on any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from pykclient.confluent.kafka_error import ConcurrentModificationException

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

#: The longest wait of a thread for its turn, if another thread's callback never returns.
_PATIENCE_S: Final = 300.0
#: How long ``poll`` waits at a time once several threads use the consumer.
SHARED_SLICE_S: Final = 0.02


class Turns:
    """Lets one thread at a time call a consumer, in the order in which they came.

    A thread that waits for messages passes its turn on now and then (``pass_on``). Calls inside a callback belong to
    the turn of the call that runs the callback. Thread: any.
    """

    def __init__(self) -> None:
        #: Held during a turn. Guards all that the consumer knows.
        self._turn: Any = threading.RLock()  # typeshed does not know _is_owned
        #: Held by the thread that has waited longest. The others wait for it, so none can overtake.
        self._next = threading.Lock()
        self._nested = 0
        #: True once a thread had to wait: the consumer is used by several.
        self.is_shared = False

    def call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait for a turn, and call ``method`` in it.

        Raises:
            ConcurrentModificationException: another thread's turn lasts for 5 minutes, and so does a callback in it.
        """
        if self._turn._is_owned():
            self._nested += 1
            try:
                return method(*args, **kwargs)
            finally:
                self._nested -= 1
        try:
            self._take()
            self._nested = 0
            return method(*args, **kwargs)
        finally:
            if self._turn._is_owned():  # not if a signal handler raised while this thread waited
                self._turn.release()

    def _take(self) -> None:
        with self._next:
            if self._turn.acquire(blocking=False):
                return
            self.is_shared = True
            if self._turn.acquire(timeout=_PATIENCE_S):
                return
        raise ConcurrentModificationException(
            f"another thread's call of this consumer has not returned within {_PATIENCE_S:.0f} s: is one of its "
            f"callbacks waiting for this thread?"
        )

    def pass_on(self) -> None:
        """Let the next thread that waits have its turn, and wait for another one. Not inside of callbacks."""
        if self._nested or not self._next.locked():
            return
        self._turn.release()
        self._take()


def in_turn(method: F) -> F:
    """Decorate a method of a client whose ``turns`` its calls wait for."""

    @wraps(method)
    def taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._inner is None:  # closed, or never made, which the method says
            return method(self, *args, **kwargs)
        return self.turns.call(method, self, *args, **kwargs)

    return cast("F", taken)
