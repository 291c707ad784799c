"""The result of a request that completes in a ``poll`` (Java: RequestFuture)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from pykclient.errors import IllegalStateError, RetriableError

T = TypeVar("T")
S = TypeVar("S")

_INCOMPLETE: Any = object()


class RequestFuture(Generic[T]):
    """A future value or error.

    The future does not wait by itself: a driver polls the network until it is done. Listeners run exactly once, on the
    thread that completes the future.

    Thread: any. One thread completes it. A listener that is added at the same time is taken from the queue by whichever
    of the two threads comes first, so it is neither lost nor called twice.
    """

    __slots__ = ("_dependents", "_error", "_is_given_up", "_listeners", "_value")

    def __init__(self) -> None:
        self._value: Any = _INCOMPLETE
        self._error: Exception | None = None
        self._is_given_up = False
        self._dependents: tuple[RequestFuture[Any], ...] = ()  # futures that the listeners complete
        self._listeners: deque[tuple[Callable[[T], object] | None, Callable[[Exception], object] | None]] = deque()

    @property
    def is_done(self) -> bool:
        return self._value is not _INCOMPLETE

    @property
    def succeeded(self) -> bool:
        return self._value is not _INCOMPLETE and self._error is None

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def is_retriable(self) -> bool:
        """Return whether the error is retriable.

        Raises:
            IllegalStateError: there is no error.
        """
        return isinstance(self.exception, RetriableError)

    @property
    def value(self) -> T:
        """The result.

        Raises:
            IllegalStateError: the future has not succeeded.
        """
        if not self.succeeded:
            raise IllegalStateError("the request has not succeeded, so it has no value")
        return cast("T", self._value)

    @property
    def exception(self) -> Exception:
        """The error.

        Raises:
            IllegalStateError: the future has not failed.
        """
        if self._error is None:
            raise IllegalStateError("the request has not failed, so it has no error")
        return self._error

    def complete(self, value: T) -> None:
        """Complete the future with ``value``.

        Raises:
            IllegalStateError: it is done already.
        """
        if self._value is not _INCOMPLETE:
            if self._is_given_up:
                return
            raise IllegalStateError("the request is done already")
        self._value = value
        self._fire()

    def raise_error(self, error: Exception) -> None:
        """Complete the future with ``error`` (Java: raise).

        Raises:
            IllegalStateError: it is done already.
        """
        if self._value is not _INCOMPLETE:
            if self._is_given_up:
                return
            raise IllegalStateError("the request is done already") from error
        # The error is set first: a thread that sees the future done must see the error.
        self._error = error
        self._value = None
        self._fire()

    def settle(self: RequestFuture[None], error: Exception | None) -> None:
        """Complete the future with ``error``, or with success if that is None.

        Raises:
            IllegalStateError: it is done already.
        """
        if error is None:
            self.complete(None)
        else:
            self.raise_error(error)

    def add_listener(
        self,
        on_success: Callable[[T], object] | None = None,
        on_failure: Callable[[Exception], object] | None = None,
    ) -> None:
        """Call one of the two functions once the future is done, which may be immediately."""
        self._listeners.append((on_success, on_failure))
        if self._value is not _INCOMPLETE:
            self._fire()

    def compose(
        self,
        on_success: Callable[[T, RequestFuture[S]], object],
        on_failure: Callable[[Exception, RequestFuture[S]], object] | None = None,
    ) -> RequestFuture[S]:
        """Return a future of another type that the functions complete; it is their second argument.

        By default the error is passed on.
        """
        composed: RequestFuture[S] = RequestFuture()
        self._dependents += (composed,)
        if on_failure is None:
            self.add_listener(lambda value: on_success(value, composed), composed.raise_error)
        else:
            self.add_listener(lambda value: on_success(value, composed), lambda error: on_failure(error, composed))
        return composed

    def chain(self, future: RequestFuture[T]) -> None:
        """Complete ``future`` with the outcome of this one."""
        self._dependents += (future,)
        self.add_listener(future.complete, future.raise_error)

    def give_up(self, error: Exception) -> None:
        """Fail whatever an exception has kept from being completed, with ``error``.

        That is this future or, if it is done, the futures that its listeners were to complete. Later outcomes of such a
        future are ignored.
        """
        if self._value is _INCOMPLETE:
            self._is_given_up = True
            self.raise_error(error)
        else:
            self._fire()
        for future in self._dependents:
            future.give_up(error)

    def _fire(self) -> None:
        listeners = self._listeners
        while listeners:
            try:
                on_success, on_failure = listeners.popleft()
            except IndexError:  # the other thread took the last one
                return
            if self._error is not None:
                if on_failure is not None:
                    on_failure(self._error)
            elif on_success is not None:
                on_success(cast("T", self._value))

    @classmethod
    def success(cls, value: T) -> RequestFuture[T]:
        """Return a future that is done with ``value``."""
        future: RequestFuture[T] = RequestFuture()
        future.complete(value)
        return future

    @classmethod
    def failure(cls, error: Exception) -> RequestFuture[T]:
        """Return a future that is done with ``error``."""
        future: RequestFuture[T] = RequestFuture()
        future.raise_error(error)
        return future
