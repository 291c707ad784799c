"""The share consumer behind the public class, and the creation of its parts (Java: ShareConsumerImpl)."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer import consumer_arguments
from pykclient.consumer.application_driver import (
    ApplicationCall,
    Round,
    Steps,
    Transmit,
    Wait,
)
from pykclient.consumer.consumer_components import Closing, CommonComponents
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.consumer_metrics import PollMetrics, ShareFetchMetricsManager
from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
from pykclient.consumer.fetch_collector import Deserializers
from pykclient.consumer.iteration import ColumnDecoder, ColumnDecoders
from pykclient.consumer.share.acknowledgements import AcknowledgeType, acknowledge_arguments
from pykclient.consumer.share.share_consume_request_manager import ShareConsumeRequestManager
from pykclient.consumer.share.share_coordinator import ShareCoordinator
from pykclient.consumer.share.share_fetch import ShareFetch, ShareFetchBuffer
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy, FetchConfig
from pykclient.errors import IllegalStateError, InvalidGroupIdError, KafkaError, KafkaTimeoutError
from pykclient.metrics import register_app_info
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.serialization import BYTES
from pykclient.types import ConsumerRecord, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    import random

    import pyarrow as pa

    from pykclient.config.consumer_config import ShareConsumerConfig
    from pykclient.consumer.application_driver import RequestFuture
    from pykclient.consumer.share.acknowledgements import NodeAcknowledgements
    from pykclient.network.kafka_client import KafkaClient

_sequence = itertools.count(1)


class ShareConsumerComponents(CommonComponents):
    """The parts of a share consumer by name.

    Creates ``client`` unless ``kafka_client`` is given. Thread: application.
    """

    client_class = "KafkaShareConsumer"
    config: ShareConsumerConfig

    def __init__(
        self,
        config: ShareConsumerConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        kafka_client: KafkaClient | None = None,
        metadata: ConsumerMetadata | None = None,
        subscriptions: SubscriptionState | None = None,
    ) -> None:
        group_id = config["group.id"]
        if group_id is None or not group_id.strip():
            raise InvalidGroupIdError("a share consumer needs a group.id: the name of its share group")
        self.group_id: str = group_id
        self.client_id = config["client.id"] or f"consumer-{group_id}-{next(_sequence)}"
        super().__init__(config, environment, f"[ShareConsumer client_id={self.client_id} group_id={group_id}] ")
        rng = environment.new_rng()
        self.metrics = self._new_metrics()
        try:
            self._put_together(rng, kafka_client, metadata, subscriptions)
        except BaseException:
            # Nobody else gets this object, so nobody else could close them.
            self.metrics.close()
            raise

    def _put_together(
        self,
        rng: random.Random,
        kafka_client: KafkaClient | None,
        metadata: ConsumerMetadata | None,
        subscriptions: SubscriptionState | None,
    ) -> None:
        config = self.config
        fetch_config = FetchConfig.from_config(config)
        fetch_metrics = ShareFetchMetricsManager(self.metrics)
        strategy, throttling = AutoOffsetResetStrategy.NONE, fetch_metrics.throttle_time_sensor
        context = self._connect(kafka_client, metadata, subscriptions, strategy, throttling, rng)
        backoff = ExponentialBackoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"], rng)
        self.coordinator = ShareCoordinator(
            GroupRebalanceConfig.from_consumer_config(self.group_id, config),
            self.log_context,
            self.client,
            self.metrics,
            self.clock,
            self.metadata,
            self.subscriptions,
            backoff,
            rng,
            self.environment,
        )
        deserializers = Deserializers.of(self.key_deserializer, self.value_deserializer)
        self.buffer = ShareFetchBuffer(context, fetch_config, deserializers)
        self.requests = ShareConsumeRequestManager(
            context,
            fetch_config,
            self.buffer,
            fetch_metrics,
            backoff,
            self.group_id,
            self.coordinator.membership.member_id,
        )
        self.client.managers.add(self.requests)
        self.consumer_metrics = PollMetrics(self.metrics, "consumer-share-metrics")
        register_app_info(self.metrics)


#: Called with the offsets of acknowledged records by partition, and with None or the error of their acknowledgement.
AcknowledgementCommitCallback = Callable[[dict[TopicIdPartition, set[int]], KafkaError | None], object]
EXPLICIT = "explicit"


class ShareConsumer:
    """The implementation of the public methods, after their checks.

    Methods that call the application's code or wait return ``Steps`` for a driver to run; no method waits itself.

    Thread: application, one call at a time.
    """

    def __init__(self, components: ShareConsumerComponents) -> None:
        self.components = components
        self._clock = components.clock
        self._log = components.log_context.logger(__name__)
        self._client = components.client
        self._driver = components.driver
        self._coordinator = components.coordinator
        self._buffer = components.buffer
        self._requests = components.requests
        self._metadata = components.metadata
        self._subscriptions = components.subscriptions
        self._consumer_metrics = components.consumer_metrics
        self._request_timeout_ms: int = components.config["request.timeout.ms"]
        self._api_timeout_ms: int = components.config["default.api.timeout.ms"]
        self.is_explicit = components.config["share.acknowledgement.mode"] == EXPLICIT
        self._fetch = ShareFetch()  # the records of the last poll
        self._fetch.returned = True
        self._waiting: deque[ConsumerRecord[Any, Any]] = deque()  # records of the last poll that wait for a loop
        self._callback: AcknowledgementCommitCallback | None = None
        self._is_calling_back = False
        self._closing = Closing(self._log)

    # --- subscription ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        wanted = set(topics)
        self._log.info("Subscribed to %s", ", ".join(sorted(wanted)))
        if self._subscriptions.subscribe(wanted):
            self._metadata.request_update_for_new_topics()

    def unsubscribe(self) -> Steps[None]:
        """Leave the group, and release records that no poll has returned."""
        self._commit(self._buffer.release_all(), self._request_timeout_ms)
        try:
            yield from self._coordinator.leave_group("the consumer unsubscribed from all topics")
        finally:
            self._subscriptions.unsubscribe()
        self._log.info("Unsubscribed from all topics")

    def join(self, timer: Timer) -> Steps[bool]:
        """Join the group, without waiting for partitions. Return False if the timer expires first.

        Raises:
            KafkaError: the membership has failed.
        """
        while True:
            self._coordinator.poll(timer.now_ms)
            if self._coordinator.is_member:
                return True
            if timer.expired:
                return False
            yield Round(timer, lambda: self._coordinator.is_member or self._coordinator.needs_application)
            timer.update()

    # --- poll --------------------------------------------------------------------------------------------------------

    def poll(self, timer: Timer) -> Steps[ShareFetch]:
        """Return records as soon as there are some, or an empty fetch when the timer expires.

        The caller sets ``returned`` on the fetch once nothing can keep the records from the application. Until then,
        they are not acknowledged, and the next poll returns them again.

        Raises:
            IllegalStateError: there is no subscription, or records are not acknowledged that must be.
            WakeupError: ``wakeup`` was called.
            KafkaError: records cannot be read or fetched, or the membership has failed.
        """
        yield from self.run_callbacks()
        if self._subscriptions.has_no_subscription_or_user_assignment():
            raise IllegalStateError("nothing to poll: subscribe() to topics first")
        if not self._fetch.returned:
            self._waiting.clear()  # it has the same records
            return self._fetch
        self._acknowledge_last()
        if self._waiting:
            return self._take_waiting()
        self._consumer_metrics.record_poll_start(timer.now_ms)
        try:
            fetch = yield from self._poll(timer)
        finally:
            if not self._client.is_broken:  # otherwise the next call repairs it
                with self._lease():
                    self._requests.stop_fetching()
            self._consumer_metrics.record_poll_end(self._clock.now_ms())
        yield from self.run_callbacks()
        return fetch

    def load_failed(self, part: str, failure: Exception) -> None:
        """Let the next poll raise ``failure`` for its first record: a deserializer could not load what it needs."""
        self._buffer.load_failed(part, failure)

    def _poll(self, timer: Timer) -> Steps[ShareFetch]:
        is_first = True
        while True:
            self._driver.maybe_trigger_wakeup()
            self._coordinator.poll(timer.now_ms)
            fetch = self._next_fetch()
            if fetch is not None:
                # Let the brokers have the acknowledgements while the application processes the records.
                yield Transmit()
                if fetch.error is not None:
                    raise fetch.error
                return fetch
            self._requests.raise_failure()
            if not is_first and timer.expired:
                return ShareFetch()
            is_first = False
            yield Round(timer, self._has_news)
            timer.update()
            yield from self.run_callbacks()  # locks may be renewed

    def column_decoders(
        self, columns: Collection[str] | None, key: ColumnDecoder | None = None, value: ColumnDecoder | None = None
    ) -> ColumnDecoders:
        """Return the checked columns to build, and the decoders of keys and values.

        Raises:
            ImportError: pyarrow is not installed.
            IllegalArgumentError: a name is wrong, or a decoder is.
            IllegalStateError: the consumer has deserializers.
        """
        from pykclient.record.arrow import SHARE_COLUMN_NAMES, pyarrow
        from pykclient.record.columns import checked_names

        pyarrow()  # raises ImportError before any records are taken
        components = self.components
        if not (components.key_deserializer is BYTES and components.value_deserializer is BYTES):
            raise IllegalStateError(
                "columns have keys and values as the bytes that were sent: read with poll(), or without "
                "key_deserializer and value_deserializer"
            )
        wanted = checked_names(consumer_arguments.columns(columns), SHARE_COLUMN_NAMES)
        return ColumnDecoders(key, value, wanted, SHARE_COLUMN_NAMES, ("topic", "partition", "offset"))

    @staticmethod
    def columns(fetch: ShareFetch, names: Sequence[str]) -> pa.RecordBatch:
        """Return the records of ``fetch`` as columns, which are not decoded."""
        from pykclient.record.arrow import batch_of_records

        return batch_of_records([record for records in fetch.records.values() for record in records], names)

    def _has_news(self) -> bool:
        """Return whether a poll need not wait any longer."""
        requests = self._requests
        if requests.has_failure or self._coordinator.needs_application:
            return True
        # Records with renewed locks come first.
        return bool(requests.completed) if self._fetch.has_renewals else not self._buffer.is_empty

    def _next_fetch(self) -> ShareFetch | None:
        """Return buffered records, or records with renewed locks; None if there are none, and then fetch more."""
        current = self._fetch
        acknowledged = current.take_acknowledged()
        if current.is_empty:
            fetch = self._buffer.collect()
            if fetch.num_records or fetch.error is not None:
                self._commit(acknowledged, self._api_timeout_ms)
                # The application gets the error of a fetch instead of records.
                fetch.returned = fetch.error is not None
                self._fetch = fetch
                return fetch
            self._commit(fetch.take_acknowledged(), self._api_timeout_ms)  # gaps only
            with self._lease():
                self._requests.begin_fetching(acknowledged)
            return None
        self._commit(acknowledged, self._api_timeout_ms)
        current.take_renewed()
        if current.num_records:
            current.returned = False
            return current
        return None

    def _acknowledge_last(self) -> None:
        """Accept the records of the last poll, or check that the application has acknowledged them.

        Raises:
            IllegalStateError: there are records that are not acknowledged, and they must be.
        """
        if not self.is_explicit:
            self._accept()
        elif missing := self._fetch.unacknowledged - len(self._waiting):
            raise IllegalStateError(
                f"{missing} records of the last poll() are not acknowledged: with "
                "share.acknowledgement.mode=explicit, call acknowledge(record, type) for each of them before the next "
                "poll()"
            )

    def _accept(self) -> None:
        """Accept the records that the application has received."""
        if not self._fetch.returned:
            return
        waiting: dict[TopicPartition, set[int]] = {}
        for record in self._waiting:
            waiting.setdefault(TopicPartition(record.topic, record.partition), set()).add(record.offset)
        self._fetch.acknowledge_rest(AcknowledgeType.ACCEPT, waiting)

    # --- loops -------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> deque[ConsumerRecord[Any, Any]]:
        """The records that wait for a loop. They are not acknowledged before the loop has received them."""
        return self._waiting

    @property
    def has_waiting_records(self) -> bool:
        """True if a loop can take records without another poll."""
        return bool(self._waiting) and self._fetch.returned

    def keep_for_loop(self, fetch: ShareFetch) -> None:
        """Keep the records of ``fetch`` for a loop to take."""
        self._waiting.extend(record for records in fetch.records.values() for record in records)
        fetch.returned = True

    def _take_waiting(self) -> ShareFetch:
        """Return the records that an abandoned loop has left."""
        self._commit(self._fetch.take_acknowledged(), self._api_timeout_ms)
        self._fetch.returned = False
        self._waiting.clear()
        return self._fetch

    # --- acknowledgements --------------------------------------------------------------------------------------------

    def acknowledge(self, args: tuple[Any, ...]) -> None:
        """Acknowledge the records that the public method's arguments select."""
        places, kind, is_failed = acknowledge_arguments(args)
        self._require_explicit()
        if not is_failed:
            self._fetch.acknowledge(places, kind)
            return
        for tp, offset in places:
            self._fetch.acknowledge_failed(tp, offset, kind)

    def _require_explicit(self) -> None:
        if not self.is_explicit:
            raise IllegalStateError(
                "records are acknowledged implicitly, when poll() or a commit is called next: to acknowledge them one "
                "by one, set share.acknowledgement.mode=explicit"
            )

    def commit_sync(self, timer: Timer) -> Steps[dict[TopicIdPartition, KafkaError | None]]:
        """Send the acknowledgements and wait for the answers; return None or the error of each partition."""
        yield from self.run_callbacks()
        if not self.is_explicit:
            self._accept()
        acknowledged = self._fetch.take_acknowledged()
        futures = self._commit(acknowledged, timer.remaining_ms)
        yield Wait(timer, lambda: all(future.is_done for future in futures))
        result: dict[TopicIdPartition, KafkaError | None] = {}
        for _, tip, acknowledgements in acknowledged:
            result[tip] = acknowledgements.error
            if not acknowledgements.is_done:
                result[tip] = KafkaTimeoutError(
                    f"the broker did not answer the acknowledgement within {timer.timeout_ms} ms; the acknowledgement "
                    "commit callback will get the outcome"
                )
        yield from self.run_callbacks()
        return result

    def commit_async(self) -> Steps[None]:
        """Send the acknowledgements without waiting for the answers."""
        yield from self.run_callbacks()
        if not self.is_explicit:
            self._accept()
        futures = self._commit(self._fetch.take_acknowledged(), self._api_timeout_ms)
        if futures:
            # The application may not poll for a while.
            yield Round(Timer(self._clock, 0), wakeup=False)

    def _commit(self, acknowledged: list[NodeAcknowledgements], timeout_ms: int) -> list[RequestFuture[None]]:
        if not acknowledged:
            return []
        with self._lease():
            return self._requests.commit(acknowledged, timeout_ms)

    @contextmanager
    def _lease(self) -> Iterator[None]:
        """Hold the I/O lease. An exception that interrupts the block leaves the client marked as broken."""
        with self._client.lease:
            self._client.is_broken = True
            yield
            self._client.is_broken = False

    def set_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        self._callback = callback

    def run_callbacks(self) -> Steps[None]:
        """Handle answered acknowledgements, and tell the application."""
        if self._is_calling_back:  # in another task, whose callback is asynchronous
            yield Wait(Timer(self._clock, FOREVER_MS), lambda: not self._is_calling_back)
        if self._requests.completed:
            self._is_calling_back = True
            try:
                yield from self._handle_completed()
            finally:
                self._is_calling_back = False

    def _handle_completed(self) -> Steps[None]:
        completed = self._requests.completed
        while completed:
            # It stays in the queue until it is handled, as an exception of a signal handler may strike before.
            tip, acknowledgements, lock_timeout_ms = completed[0]
            self._fetch.renewed(tip, acknowledgements, lock_timeout_ms)
            error = acknowledgements.error
            if self._callback is not None:
                call = partial(self._callback, {tip: set(acknowledgements.types)}, error)
                try:
                    yield ApplicationCall(call, uses_consumer=False)
                except Exception:  # noqa: BLE001 - the application's code; as in Java, it does not end the call
                    self._log.exception("The acknowledgement commit callback failed")
            elif error is not None:
                count, tp = len(acknowledgements), tip.topic_partition
                self._log.warning("The acknowledgement of %d records of %s failed: %s", count, tp, error)
            completed.popleft()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The period of the locks of the last records, in milliseconds."""
        return self._fetch.lock_timeout_ms

    # --- recovery from exceptions ------------------------------------------------------------------------------------

    def has_leftovers(self) -> bool:
        """Return True if the last call took records that did not reach the application."""
        return not self._fetch.returned

    def recover(self, in_middle: bool) -> None:
        """Restore a consistent state after an exception ended the last call.

        ``in_middle`` means that a signal handler raised it, or something else that may strike between any two
        instructions. Unless it struck in the wait for the network, connections and sessions are dropped, and the locks
        of all records with them, also of those that the application has received. The brokers deliver them again.
        """
        self._is_calling_back = False
        if in_middle and not self._client.end_interrupted_wait():
            self._log.info("An exception interrupted the last call; reconnecting, which releases the locks of records")
            self._subscriptions.refile()
            self._client.reset()
            self._coordinator.recover()
            self._waiting.clear()
            self._fetch = ShareFetch()
            self._fetch.returned = True

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int) -> Steps[KafkaError | None]:
        """Send the acknowledgements, leave the group and close everything within ``timeout_ms``.

        Return the first error. An exception of a signal handler ends this immediately; another call does the rest.
        """
        self._driver.disable_wakeups()
        timer = Timer(self._clock, min(timeout_ms, self._request_timeout_ms))
        closing = self._closing
        yield from closing.attempt_steps("the share sessions", self._close_sessions(timer))
        yield from closing.attempt_steps("the coordinator", self._coordinator.close(timer))
        yield from closing.attempt_steps("the callbacks", self.run_callbacks())
        closing.attempt_rest(self.components)
        self._buffer.clear()
        self._waiting.clear()
        self._log.debug("Closed")
        return closing.failure

    def _close_sessions(self, timer: Timer) -> Steps[None]:
        """Send the acknowledgements that the application has made, and release all other records."""
        with self._lease():
            futures = self._requests.close_sessions(self._fetch.take_acknowledged(), timer.remaining_ms)
        if not (yield Wait(timer, lambda: all(future.is_done for future in futures), wakeup=False)):
            self._log.warning("Closing before all brokers have answered; the locks of the records expire")

    def abandon(self) -> None:
        """Release the thread and sockets of a consumer that was never closed. Takes no locks."""
        if not self._coordinator.abandon():
            self._client.close()
