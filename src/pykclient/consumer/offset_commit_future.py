"""The result of ``commit_async`` (kafka-python: Future)."""

from __future__ import annotations

from collections.abc import Callable

from pykclient.consumer.request_future import RequestFuture


class OffsetCommitFuture:
    """The future of an asynchronous commit, which completes inside later calls of the consumer.

    It cannot be waited on; use ``commit()`` to wait. Thread: application.
    """

    __slots__ = ("_future",)

    def __init__(self, future: RequestFuture[None]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        return self._future.is_done

    @property
    def exception(self) -> Exception | None:
        """The error, or None if there is none."""
        return self._future.exception if self._future.failed else None

    @property
    def value(self) -> None:
        """None: a commit has no result."""
        return

    def succeeded(self) -> bool:
        return self._future.succeeded

    def failed(self) -> bool:
        return self._future.failed

    def retriable(self) -> bool:
        """Return whether the commit failed with an error that allows a retry."""
        return self._future.failed and self._future.is_retriable

    def add_callback(self, callback: Callable[[None], object]) -> OffsetCommitFuture:
        """Call ``callback(None)`` on success."""
        self._future.add_listener(callback)
        return self

    def add_errback(self, errback: Callable[[Exception], object]) -> OffsetCommitFuture:
        """Call ``errback(error)`` on failure."""
        self._future.add_listener(None, errback)
        return self
