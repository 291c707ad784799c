"""What became of the records of one task, and how Spark is told where some did not get to Kafka."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.errors import (
    AuthenticationError,
    ClusterAuthorizationError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from pykclient.producer.batch_future import BatchFuture

if TYPE_CHECKING:
    from pykclient.producer.future import FutureRecordMetadata

#: So many futures are kept before it is looked which of them are over.
_LEAST_KEPT = 8

#: What to do about an error, for the most usual ones. The first class that fits decides.
_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (
        RecordTooLargeError,
        "a record may have as much as the producer's max.request.size (option kafka.max.request.size) and the topic's "
        "max.message.bytes allow: raise both, or make records smaller",
    ),
    (TopicAuthorizationError, "the principal needs the ACLs WRITE and DESCRIBE for the topic"),
    (
        ClusterAuthorizationError,
        "brokers before Kafka 2.8 want the ACL IDEMPOTENT_WRITE for the cluster; without it, set enable.idempotence "
        "to false (option kafka.enable.idempotence)",
    ),
    (AuthenticationError, "check the settings that begin with sasl. and ssl. (options kafka.sasl.*, kafka.ssl.*)"),
    (InvalidTopicError, "names of topics have letters, digits, dots, dashes and underscores, 249 at most"),
    (
        KafkaTimeoutError,
        "check that the topic is there, that the brokers can be reached from where tasks run, and that partitions have "
        "leaders; delivery.timeout.ms and max.block.ms (options kafka.delivery.timeout.ms, kafka.max.block.ms) say how "
        "long is waited",
    ),
)


def described(error: BaseException) -> str:
    """An error in one line, with what to do about it where that is known."""
    text = f"{type(error).__name__}: {error}"
    for kind, hint in _HINTS:
        if isinstance(error, kind):
            return f"{text} ({hint})"
    return text


class Deliveries:
    """The fate of the records of a task, as far as it is known.

    Futures of records whose fate is known are dropped as others come, so that no more are kept than twice of what is on
    its way. Thread: any.
    """

    __slots__ = ("_first_error", "_futures", "_lock", "_look_at", "failed", "sent")

    def __init__(self) -> None:
        self._futures: deque[FutureRecordMetadata | BatchFuture] = deque()  # its own operations are atomic
        self._look_at = _LEAST_KEPT
        self._lock = threading.Lock()  # guards: sent, failed, _first_error
        self.sent = 0
        self.failed = 0
        self._first_error: Exception | None = None

    def add(self, future: FutureRecordMetadata | BatchFuture) -> None:
        """Watch over what was sent."""
        futures = self._futures
        futures.append(future)
        if len(futures) >= self._look_at:
            self.look()

    @property
    def first_error(self) -> Exception | None:
        """The first that was found; None while none was."""
        return self._first_error

    @property
    def pending(self) -> int:
        """So many futures are still watched."""
        return len(self._futures)

    def look(self) -> None:
        """Count what is known by now."""
        futures = self._futures
        sent = failed = 0
        first: Exception | None = None
        for _ in range(len(futures)):
            try:
                future = futures.popleft()
            except IndexError:  # another thread looks as well
                break
            if not future.done():
                futures.append(future)
                continue
            records, errors = _outcome(future)
            sent += records
            failed += sum(count for count, _ in errors)
            if errors and first is None:
                first = errors[0][1]
        self._look_at = max(_LEAST_KEPT, 2 * len(futures))
        with self._lock:
            self.sent += sent
            self.failed += failed
            if self._first_error is None:
                self._first_error = first

    def check(self, where: str) -> None:
        """Look, and raise KafkaError where records have failed, with their number and the first error.

        ``where`` says whose records they are. Call it once the producer has been flushed.
        """
        self.look()
        error = self._first_error
        if error is not None:
            raise KafkaError(
                f"{self.failed} of {self.sent} records {where} were not written to Kafka; the first error is "
                f"{described(error)}"
            ) from error


def _outcome(future: FutureRecordMetadata | BatchFuture) -> tuple[int, list[tuple[int, Exception]]]:
    """How many records it was for, and how many failed with which error."""
    if isinstance(future, BatchFuture):
        return future.num_rows, [(len(each.rows), each.error) for each in future.errors if each.error is not None]
    error = future.exception
    return 1, [] if error is None else [(1, error)]
