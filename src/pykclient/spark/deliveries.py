"""The results of one task's sends, and the errors that Spark gets for records that were not written."""

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
from pykclient.producer.columns import BatchFuture

if TYPE_CHECKING:
    from pykclient.producer.future import FutureRecordMetadata

#: The number of futures that are kept before the first look for completed ones.
_LEAST_KEPT = 8

#: Advice on the most common errors. The first class that fits decides.
_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (
        RecordTooLargeError,
        "the producer's max.request.size (option kafka.max.request.size) and the topic's max.message.bytes limit the "
        "size of a record: raise both, or write smaller records",
    ),
    (TopicAuthorizationError, "the principal needs the ACLs WRITE and DESCRIBE for the topic"),
    (
        ClusterAuthorizationError,
        "brokers before Kafka 2.8 require the ACL IDEMPOTENT_WRITE for the cluster; without it, set enable.idempotence "
        "to false (option kafka.enable.idempotence)",
    ),
    (AuthenticationError, "check the settings that begin with sasl. and ssl. (options kafka.sasl.*, kafka.ssl.*)"),
    (InvalidTopicError, "topic names consist of at most 249 letters, digits, dots, dashes and underscores"),
    (
        KafkaTimeoutError,
        "check that the topic exists, that executors can reach the brokers, and that partitions have leaders; "
        "delivery.timeout.ms and max.block.ms (options kafka.delivery.timeout.ms, kafka.max.block.ms) limit the wait",
    ),
)


def described(error: BaseException) -> str:
    """Return an error in one line, with advice if there is any."""
    text = f"{type(error).__name__}: {error}"
    for kind, hint in _HINTS:
        if isinstance(error, kind):
            return f"{text} ({hint})"
    return text


class Deliveries:
    """The results of the records of a task, as far as they are known.

    Completed futures are dropped as others are added, so that at most twice as many are kept as are in flight.
    Thread: any.
    """

    def __init__(self, *, keep_offsets: bool = False) -> None:
        #: With ``keep_offsets``: topic and partition of written rows, with their first and last offset.
        self.pieces: dict[tuple[str, int], tuple[int, int]] | None = {} if keep_offsets else None
        self._futures: deque[FutureRecordMetadata | BatchFuture] = deque()  # appending and popping are atomic
        self._look_at = _LEAST_KEPT
        self._lock = threading.Lock()  # guards: sent, failed, _first_error
        self.sent = 0
        self.failed = 0
        self._first_error: Exception | None = None

    def add(self, future: FutureRecordMetadata | BatchFuture) -> None:
        """Add the future of a record or of a batch."""
        futures = self._futures
        futures.append(future)
        if len(futures) >= self._look_at:
            self.look()

    @property
    def pending(self) -> int:
        """The number of futures that are not known to be complete."""
        return len(self._futures)

    def look(self) -> None:
        """Count the records of completed futures, and drop these."""
        futures = self._futures
        sent = failed = 0
        first: Exception | None = None
        for _ in range(len(futures)):
            try:
                future = futures.popleft()
            except IndexError:  # another thread looks, too
                break
            if not future.done():
                futures.append(future)
                continue
            records, errors = _outcome(future)
            if self.pieces is not None and isinstance(future, BatchFuture):
                self._keep_offsets(future, self.pieces)
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

    def _keep_offsets(self, future: BatchFuture, pieces: dict[tuple[str, int], tuple[int, int]]) -> None:
        for each in future.slices:
            if each.base_offset >= 0:
                place, last = (each.topic, each.partition), each.base_offset + len(each.rows) - 1
                known = pieces.get(place, (each.base_offset, last))
                pieces[place] = (min(known[0], each.base_offset), max(known[1], last))

    def check(self, where: str) -> None:
        """Count completed futures, and raise an error if records have failed.

        ``where`` says whose records they are. Call it after flushing the producer.

        Raises:
            KafkaError: Records have failed. The text has their number and the first error.
        """
        self.look()
        error = self._first_error
        if error is not None:
            raise KafkaError(
                f"{self.failed} of {self.sent} records {where} were not written to Kafka; the first error is "
                f"{described(error)}"
            ) from error


def _outcome(future: FutureRecordMetadata | BatchFuture) -> tuple[int, list[tuple[int, Exception]]]:
    """Return the number of a future's records, and for each error how many failed with it."""
    if isinstance(future, BatchFuture):
        return future.num_rows, [(len(each.rows), each.error) for each in future.errors if each.error is not None]
    error = future.exception
    return 1, [] if error is None else [(1, error)]
