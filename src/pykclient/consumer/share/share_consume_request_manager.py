"""A share session with one broker (Java: ShareSessionHandler).

The first request of a session has epoch 0 and names all partitions. Later ones name only what has changed. The last one
has epoch -1; the broker then releases the locks of all records that it has delivered in the session. If the epochs of
both sides do not match, a new session begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, PollResult, UnsentRequest
from pykclient.consumer.consumer_metrics import FetchMetricsAggregator
from pykclient.consumer.share.acknowledgements import Acknowledgements, AcknowledgeOperation, NodeAcknowledgements
from pykclient.consumer.share.share_fetch import ShareCompletedFetch
from pykclient.consumer.values import BATCH_OPTIMIZED, RECORD_LIMIT
from pykclient.network.client_request import RequestBuilder
from pykclient.network.failures import group_denied, shown_node
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from pykclient.protocol.messages.share_fetch import ShareFetchRequest
from pykclient.types import Node, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.application_driver import RequestFuture
    from pykclient.consumer.consumer_metrics import ShareFetchMetricsManager
    from pykclient.consumer.fetch_collector import FetchContext
    from pykclient.consumer.share.share_fetch import ShareFetchBuffer
    from pykclient.consumer.values import FetchConfig
    from pykclient.log_context import LogContext
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
    from pykclient.protocol.messages.share_fetch import ShareFetchResponse

    PartitionAcknowledgements = dict[TopicIdPartition, Acknowledgements]

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1

#: The version that can renew locks (KIP-1222) and limit the number of records (KIP-1206).
_RENEWALS_AND_LIMITS = 2

_SESSION_LOST = (
    errors.ShareSessionNotFoundError,
    errors.InvalidShareSessionEpochError,
    errors.ShareSessionLimitReachedError,
)

B = TypeVar("B")
#: Acknowledgements by partition.
AcknowledgementMap = Mapping["TopicIdPartition", "Acknowledgements"]


class ShareSessionHandler:
    """The client's side of one session.

    After each request, call ``handle_response`` or ``handle_error`` before you build the next.

    Thread: owner.
    """

    def __init__(self, log_context: LogContext, node_id: int, group_id: str, member_id: str) -> None:
        self._log = log_context.logger(__name__)
        self._node_id = node_id
        self._group_id = group_id
        self._member_id = member_id
        self.epoch = INITIAL_EPOCH  # of the next request
        self._partitions: dict[TopicPartition, TopicIdPartition] = {}

    @property
    def is_new(self) -> bool:
        """True if the next request begins a session. It cannot have acknowledgements."""
        return self.epoch == INITIAL_EPOCH

    @property
    def partitions(self) -> Collection[TopicIdPartition]:
        """The partitions of the session."""
        return self._partitions.values()

    def build_fetch(
        self,
        wanted: Collection[TopicIdPartition],
        acknowledgements: AcknowledgementMap,
        config: FetchConfig,
        *,
        takes_records: bool = True,
    ) -> RequestBuilder | None:
        """Return a request that sets the session's partitions to exactly ``wanted``.

        Without ``takes_records`` it asks for no records, and if there is nothing to say, the result is None. A request
        that renews locks asks for no records either, because the broker would hold it back.
        """
        present = {} if self.is_new else self._partitions
        after = {partition.topic_partition: partition for partition in wanted}
        added = [partition for tp, partition in after.items() if present.get(tp) != partition]
        removed = [partition for tp, partition in present.items() if after.get(tp) != partition]
        if not takes_records and not added and not removed and not acknowledgements:
            return None
        self._partitions = after
        renews = _renews(acknowledgements)
        topics: dict[UUID, ShareFetchRequest.FetchTopic] = {}
        for partition in dict.fromkeys((*added, *acknowledgements)):
            topic = topics.setdefault(partition.topic_id, ShareFetchRequest.FetchTopic(topic_id=partition.topic_id))
            data = ShareFetchRequest.FetchPartition(partition_index=partition.partition)
            if partition in acknowledgements:
                data.acknowledgement_batches = _batches(
                    ShareFetchRequest.AcknowledgementBatch, acknowledgements[partition]
                )
            topic.partitions.append(data)
        forgotten: dict[UUID, ShareFetchRequest.ForgottenTopic] = {}
        for partition in removed:
            forgotten.setdefault(
                partition.topic_id, ShareFetchRequest.ForgottenTopic(topic_id=partition.topic_id)
            ).partitions.append(partition.partition)
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_bytes=0,
            share_acquire_mode=config.acquire_mode,
            is_renew_ack=renews,
            topics=topics.values(),
            forgotten_topics_data=forgotten.values(),
        )
        if takes_records and not renews:
            request.max_wait_ms = config.max_wait_ms
            request.min_bytes = config.min_bytes
            request.max_bytes = config.max_bytes
            request.max_records = request.batch_size = config.max_poll_records
        self._log.debug(
            "Share fetch from broker %d in epoch %d: %d partitions added, %d removed, %d acknowledged",
            self._node_id,
            self.epoch,
            len(added),
            len(removed),
            len(acknowledgements),
        )
        return RequestBuilder(request, _min_version(renews, config.acquire_mode))

    def build_acknowledge(self, acknowledgements: AcknowledgementMap, *, is_last: bool = False) -> RequestBuilder:
        """Return a request that only acknowledges; ``is_last`` ends the session. The session must not be new."""
        if is_last:
            self.epoch = FINAL_EPOCH
        renews = _renews(acknowledgements)
        topics: dict[UUID, ShareAcknowledgeRequest.AcknowledgeTopic] = {}
        for partition, each in acknowledgements.items():
            topic = topics.setdefault(
                partition.topic_id, ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=partition.topic_id)
            )
            topic.partitions.append(
                ShareAcknowledgeRequest.AcknowledgePartition(
                    partition_index=partition.partition,
                    acknowledgement_batches=_batches(ShareAcknowledgeRequest.AcknowledgementBatch, each),
                )
            )
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=renews,
            topics=topics.values(),
        )
        return RequestBuilder(request, _min_version(renews, BATCH_OPTIMIZED))

    def handle_response(self, error: errors.KafkaError | None) -> None:
        """Advance to the next epoch, or begin a new session if the top-level ``error`` requires it."""
        if error is not None:
            self._log.info("Broker %d refused a share request in epoch %d: %s", self._node_id, self.epoch, error)
        if isinstance(error, _SESSION_LOST):
            self._begin_anew()
        elif self.epoch != FINAL_EPOCH:
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def handle_error(self, error: Exception) -> None:
        """Begin a new session: the request has failed or got no answer, so the broker's state is unknown."""
        # Only debug: the network client logs lost connections, once for each outage.
        self._log.debug("A share request to broker %d in epoch %d failed: %s", self._node_id, self.epoch, error)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.epoch = INITIAL_EPOCH
        self._partitions = {}


def _batches(of: Callable[..., B], acknowledgements: Acknowledgements) -> list[B]:
    return [
        of(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acknowledgements.batches()
    ]


def _renews(acknowledgements: AcknowledgementMap) -> bool:
    return any(each.has_renewals for each in acknowledgements.values())


def _min_version(renews: bool, acquire_mode: int) -> int | None:
    return _RENEWALS_AND_LIMITS if renews or acquire_mode == RECORD_LIMIT else None


_AGAIN = "the records are delivered again"
_LEADER_MOVED = (errors.NotLeaderOrFollowerError, errors.FencedLeaderEpochError)
#: After these errors the locks are gone, so retrying cannot help.
_LOCKS_GONE = (*_LEADER_MOVED, errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)


class ShareConsumeRequestManager:
    """Sends fetches with the acknowledgements of earlier records, and acknowledgements alone.

    A node has at most one request in flight, because the epochs of a session must arrive in order. Records are fetched
    only between ``begin_fetching`` and ``stop_fetching``: fetched records are locked, and the locks expire.

    Thread: the holder of the I/O lease. The heartbeat thread polls it, too, so that acknowledgements are sent while the
    application is busy.
    """

    runs_in_background = True
    pending = True

    def __init__(
        self,
        context: FetchContext,
        config: FetchConfig,
        buffer: ShareFetchBuffer,
        metrics: ShareFetchMetricsManager,
        retry_backoff: ExponentialBackoff,
        group_id: str,
        member_id: str,
    ) -> None:
        self._log_context, self._client, self._metadata, self._subscriptions, self._clock, _ = context
        self._log = context.log_context.logger(__name__)
        self._config = config
        self._buffer = buffer
        self._metrics = metrics
        self._retry_backoff = retry_backoff
        self._group_id = group_id
        self._member_id = member_id
        self._sessions: dict[int, ShareSessionHandler] = {}
        self._busy: set[int] = set()  # nodes with a request in flight
        self._rest_until_ms: dict[int, int] = {}  # nodes that have answered a fetch with errors only
        self._piggyback: dict[int, PartitionAcknowledgements] = {}  # for the next fetch of each node
        self._in_fetches: dict[int, PartitionAcknowledgements] = {}  # of the fetch in flight, by node
        self._operations: dict[int, deque[AcknowledgeOperation]] = {}  # by node, in order
        self._names: dict[tuple[UUID, int], TopicIdPartition] = {}  # of all partitions that were ever asked for
        self._is_fetching = False
        self._is_closing = False
        # With a limit of records: the only node to take records from, and how often one was chosen.
        self._record_node_id: int | None = None
        self._rotation = 0
        self._failure: errors.KafkaError | None = None
        #: Answered acknowledgements, for the application: partition, acknowledgements, new period of the locks in ms.
        self.completed: deque[tuple[TopicIdPartition, Acknowledgements, int | None]] = deque()

    # --- calls of the application ------------------------------------------------------------------------------------

    def begin_fetching(self, acknowledged: Iterable[NodeAcknowledgements]) -> None:
        """Fetch records until some arrive or ``stop_fetching``; the requests acknowledge earlier records."""
        self._is_fetching = True
        for node_id, tip, acknowledgements in acknowledged:
            waiting = self._piggyback.setdefault(node_id, {})
            if tip in waiting:
                waiting[tip].merge(acknowledgements)
            else:
                waiting[tip] = acknowledgements
        self._client.managers.poll_soon()

    def stop_fetching(self) -> None:
        """Send no more fetches. Acknowledgements that wait for one are sent alone."""
        self._is_fetching = False
        for node_id in list(self._piggyback):
            self._send_alone(node_id)

    def commit(self, acknowledged: Iterable[NodeAcknowledgements], timeout_ms: int) -> list[RequestFuture[None]]:
        """Send acknowledgements without fetching. Retriable errors are retried for ``timeout_ms``.

        Return futures that are done when all are answered; the answers are in ``completed``.
        """
        by_node: dict[int, PartitionAcknowledgements] = {}
        for node_id, tip, acknowledgements in acknowledged:
            by_node.setdefault(node_id, {})[tip] = acknowledgements
        deadline_ms = min(FOREVER_MS, self._clock.now_ms() + timeout_ms)
        return [self._enqueue(node_id, waiting, deadline_ms).done for node_id, waiting in by_node.items()]

    def close_sessions(
        self, acknowledged: Iterable[NodeAcknowledgements], timeout_ms: int
    ) -> list[RequestFuture[None]]:
        """Send all acknowledgements and end all sessions, which releases the locks of all other records.

        A fetch in flight may wait for records. If no acknowledgement depends on its session, the end of the connection
        ends both. A request on another connection would end the session alone: the fetch would then acquire the next
        records for a member that is gone. Return futures that are done when the brokers have answered. A second call
        does nothing.
        """
        if self._is_closing:
            return []
        self._is_closing = True
        self.stop_fetching()
        deadline_ms = min(FOREVER_MS, self._clock.now_ms() + timeout_ms)
        self.commit(acknowledged, timeout_ms)
        for node_id, in_fetch in self._in_fetches.items():
            node = self._metadata.fetch().node_by_id(node_id)
            if node is not None and not in_fetch and node_id not in self._operations:
                self._client.disconnect_async(node)
        return [self._enqueue(node_id, {}, deadline_ms, is_last=True).done for node_id in self._sessions]

    def raise_failure(self) -> None:
        """Raise, once, an error that keeps a node from being fetched from and that no retry will fix."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @property
    def has_failure(self) -> bool:
        """True if ``raise_failure`` would raise."""
        return self._failure is not None

    def _enqueue(
        self, node_id: int, waiting: PartitionAcknowledgements, deadline_ms: int, *, is_last: bool = False
    ) -> AcknowledgeOperation:
        operation = AcknowledgeOperation(waiting, deadline_ms, self._on_completed, is_last=is_last)
        self._metrics.record_sent(sum(map(len, waiting.values())))
        self._operations.setdefault(node_id, deque()).append(operation)
        self._client.managers.poll_soon()
        return operation

    def _send_alone(self, node_id: int) -> None:
        waiting = self._piggyback.pop(node_id)
        deadline_ms = self._clock.now_ms() + self._client.default_request_timeout_ms
        self._enqueue(node_id, waiting, deadline_ms)

    def _on_completed(
        self, tip: TopicIdPartition, acknowledgements: Acknowledgements, lock_timeout_ms: int | None
    ) -> None:
        if acknowledgements.error is not None:
            self._metrics.record_failed(len(acknowledgements))
        self.completed.append((tip, acknowledgements, lock_timeout_ms))

    def _fail(self, acknowledged: PartitionAcknowledgements, error: errors.KafkaError) -> None:
        for tip, acknowledgements in acknowledged.items():
            acknowledgements.complete(error)
            self._on_completed(tip, acknowledgements, None)

    # --- requests ----------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return acknowledgements that are due, and fetches from nodes that have none."""
        if not (self._operations or self._is_fetching or self._piggyback):
            return NOTHING
        requests: list[UnsentRequest] = []
        wait_ms = FOREVER_MS
        for node_id in list(self._operations):
            wait_ms = min(wait_ms, self._poll_operations(node_id, now_ms, requests))
        if self._is_fetching:
            wait_ms = min(wait_ms, self._poll_fetches(now_ms, requests))
        return PollResult(wait_ms, requests) if requests or wait_ms < FOREVER_MS else NOTHING

    def _poll_operations(self, node_id: int, now_ms: int, requests: list[UnsentRequest]) -> int:
        """Begin the next operation of a node if it is free; return the milliseconds until one is due."""
        operations = self._operations[node_id]
        while operations and node_id not in self._busy:
            operation = operations[0]
            session = self._sessions.get(node_id)
            if not operation.waiting and (not operation.is_last or session is None or session.is_new):
                self._finish(node_id, operation)
            elif operation.attempts and now_ms >= operation.deadline_ms:
                operation.fail_all(
                    errors.KafkaTimeoutError(
                        f"the acknowledgement did not succeed in {operation.attempts} attempts until its timeout; the "
                        "records are delivered again unless one of the attempts had an effect"
                    )
                )
            elif now_ms < operation.not_before_ms:
                return operation.not_before_ms - now_ms
            else:
                self._begin(node_id, operation, session, requests)
        if not operations:
            del self._operations[node_id]
        return FOREVER_MS

    def _begin(
        self,
        node_id: int,
        operation: AcknowledgeOperation,
        session: ShareSessionHandler | None,
        requests: list[UnsentRequest],
    ) -> None:
        """Send the acknowledgements of an operation, as far as their locks may still exist."""
        for tip in list(operation.waiting):
            error = self._lost(node_id, session, tip)
            if error is not None:
                operation.complete(tip, error, None)
        node = self._metadata.fetch().node_by_id(node_id)
        if session is None or node is None or not (operation.waiting or operation.is_last):
            operation.is_last = False
            operation.fail_all(self._moved(node_id))
            return
        operation.attempts += 1
        builder = session.build_acknowledge(operation.waiting, is_last=operation.is_last)
        request = self._request(node, builder)
        request.future.add_listener(
            partial(self._acknowledged, node_id, operation), partial(self._acknowledge_failed, node_id, operation)
        )
        requests.append(request)

    def _lost(
        self, node_id: int, session: ShareSessionHandler | None, tip: TopicIdPartition
    ) -> errors.KafkaError | None:
        """Return the error of acknowledgements whose locks cannot exist any more."""
        leader = self._metadata.current_leader(tip.topic_partition).leader
        if leader is None:
            self._metadata.request_update(False)
        elif leader.id != node_id:
            return errors.NotLeaderOrFollowerError(
                f"broker {node_id}, which delivered records of {tip.topic_partition}, is no longer the leader, so "
                f"their locks are gone: {_AGAIN}"
            )
        if session is None or session.is_new:
            return self._moved(node_id)
        return None

    def _moved(self, node_id: int) -> errors.KafkaError:
        return errors.NotLeaderOrFollowerError(
            f"the connection to broker {node_id} or its share session was lost after it delivered the records, so "
            f"their locks are gone: {_AGAIN}"
        )

    def _request(self, node: Node, builder: RequestBuilder) -> UnsentRequest:
        self._busy.add(node.id)
        return UnsentRequest(builder, node)

    def _finish(self, node_id: int, operation: AcknowledgeOperation) -> None:
        self._operations[node_id].popleft()
        if operation.is_last:
            self._sessions.pop(node_id, None)
        operation.finish()

    def _poll_fetches(self, now_ms: int, requests: list[UnsentRequest]) -> int:
        """Fetch from all nodes that are free; return the milliseconds until a node has rested."""
        wanted = self._wanted()
        wait_ms = FOREVER_MS
        for node_id in [*wanted, *(node_id for node_id in self._sessions if node_id not in wanted)]:
            if node_id in self._busy or node_id in self._operations:
                continue
            rest_ms = self._rest_until_ms.get(node_id, 0) - now_ms
            if rest_ms > 0:
                wait_ms = min(wait_ms, rest_ms)
                continue
            partitions = wanted.get(node_id, [])
            node = self._metadata.fetch().node_by_id(node_id)
            if node is None or self._is_unavailable(node):
                if node_id in self._piggyback:
                    self._send_alone(node_id)  # where it fails, or waits for the connection
                    wait_ms = 0
                continue
            request = self._build_fetch(node, partitions)
            if request is not None:
                requests.append(request)
        return wait_ms

    def _wanted(self) -> dict[int, list[TopicIdPartition]]:
        """Return the assigned partitions by leader. With a limit of records, each time another leader comes first."""
        wanted: dict[int, list[TopicIdPartition]] = {}
        topic_ids = self._metadata.topic_ids
        assigned = self._subscriptions.assigned_partitions_list()
        first = self._rotation % len(assigned) if assigned else 0
        for tp in assigned[first:] + assigned[:first]:
            leader, topic_id = self._metadata.current_leader(tp).leader, topic_ids.get(tp.topic)
            if leader is None or topic_id is None:
                self._metadata.request_update(False)
                continue
            wanted.setdefault(leader.id, []).append(TopicIdPartition(topic_id, tp))
        return wanted

    def _is_unavailable(self, node: Node) -> bool:
        """Return whether a request to the node would fail at once."""
        if not self._client.is_unavailable(node):
            return False
        try:
            self._client.maybe_throw_auth_failure(node)
        except errors.AuthenticationError as error:
            self._failure = error
        return True

    def _build_fetch(self, node: Node, partitions: list[TopicIdPartition]) -> UnsentRequest | None:
        session = self._sessions.get(node.id)
        if session is None:
            session = self._sessions[node.id] = ShareSessionHandler(
                self._log_context, node.id, self._group_id, self._member_id
            )
        acknowledged = self._piggyback.pop(node.id, {})
        for tip in list(acknowledged):
            error = self._lost(node.id, session, tip)
            if error is not None:
                self._fail({tip: acknowledged.pop(tip)}, error)
        if not partitions and not acknowledged and not session.partitions:
            return None
        takes_records = bool(partitions)
        if self._config.acquire_mode == RECORD_LIMIT and partitions:
            # The limit is that of the whole poll, so the records come from one node at a time.
            if self._record_node_id is None:
                self._record_node_id = node.id
                self._rotation += 1
            takes_records = self._record_node_id == node.id
        builder = session.build_fetch(partitions, acknowledged, self._config, takes_records=takes_records)
        if builder is None:
            return None
        for tip in (*partitions, *acknowledged):
            self._names[tip.topic_id, tip.partition] = tip
        self._in_fetches[node.id] = acknowledged
        if acknowledged:
            self._metrics.record_sent(sum(map(len, acknowledged.values())))
        request = self._request(node, builder)
        request.future.add_listener(partial(self._fetched, node), partial(self._fetch_failed, node))
        return request

    # --- answers to fetches ------------------------------------------------------------------------------------------

    def _end_fetch(self, node_id: int) -> PartitionAcknowledgements:
        """Note that the node is free; return what the fetch has acknowledged."""
        self._busy.discard(node_id)
        if self._record_node_id == node_id:
            self._record_node_id = None
        return self._in_fetches.pop(node_id, {})

    def _fetched(self, node: Node, response: ClientResponse) -> None:
        acknowledged = self._end_fetch(node.id)
        body: ShareFetchResponse = response.response_body
        error = errors.for_code(body.error_code, body.error_message)
        self._sessions[node.id].handle_response(error)
        if error is not None:
            self._fail(acknowledged, error)
            if isinstance(error, errors.UnknownTopicIdError):
                self._metadata.request_update(False)
            elif isinstance(error, errors.GroupAuthorizationError):
                self._failure = group_denied(self._log.principal, self._group_id)
            elif not isinstance(error, errors.RetriableError):
                self._failure = error
            if not isinstance(error, errors.ShareSessionNotFoundError):
                self._let_rest(node.id)
            return
        lock_timeout_ms = body.acquisition_lock_timeout_ms or None
        partitions = self._by_name(body)
        aggregator = FetchMetricsAggregator(self._metrics, [tip.topic_partition for tip in partitions])
        moved: dict[TopicPartition, LeaderIdAndEpoch] = {}
        has_errors = has_records = False
        for tip, data in partitions.items():
            answer = acknowledged.pop(tip, None)
            if answer is not None:
                answer.complete(errors.for_code(data.acknowledge_error_code, data.acknowledge_error_message))
                self._on_completed(tip, answer, lock_timeout_ms)
            if data.error_code:
                has_errors = True
                self._note_leader(tip, errors.for_code(data.error_code), data.current_leader, moved)
            if data.error_code or data.acquired_records:
                has_records = has_records or not data.error_code
                # The broker has locked the records after the request was made.
                lock_end_ms = FOREVER_MS if lock_timeout_ms is None else response.created_ms + lock_timeout_ms
                self._buffer_data(node, tip, data, lock_timeout_ms, lock_end_ms, aggregator)
            else:
                aggregator.record(tip.topic_partition, 0, 0)
        self._fail(acknowledged, errors.InvalidRecordStateError(f"broker {node.id} did not answer the acknowledgement"))
        self._update_leaders(moved, body.node_endpoints)
        if has_records:
            self._is_fetching = False
        elif has_errors:
            self._let_rest(node.id)
        self._metrics.record_latency(response.destination, response.request_latency_ms, response.received_ms)

    def _buffer_data(
        self,
        node: Node,
        tip: TopicIdPartition,
        data: ShareFetchResponse.PartitionData,
        lock_timeout_ms: int | None,
        lock_end_ms: int,
        aggregator: FetchMetricsAggregator,
    ) -> None:
        if self._is_closing:
            return  # the end of the session releases the records
        try:
            self._buffer.add(ShareCompletedFetch(node.id, tip, data, lock_timeout_ms, lock_end_ms, aggregator))
        except errors.KafkaError as error:
            self._failure = error

    def _by_name(self, body: ShareFetchResponse) -> dict[TopicIdPartition, ShareFetchResponse.PartitionData]:
        """Return the partitions of a response that were asked for."""
        found: dict[TopicIdPartition, ShareFetchResponse.PartitionData] = {}
        for topic in body.responses:
            for data in topic.partitions:
                tip = self._names.get((topic.topic_id, data.partition_index))
                if tip is None:
                    self._log.error(
                        "A broker answered for partition %d of topic id %s, which was not asked for",
                        data.partition_index,
                        topic.topic_id,
                    )
                else:
                    found[tip] = data
        return found

    def _let_rest(self, node_id: int) -> None:
        """Send no fetch to the node for a backoff, as it would answer with the same error at once."""
        self._rest_until_ms[node_id] = self._clock.now_ms() + self._config.retry_backoff_ms

    def _fetch_failed(self, node: Node, error: Exception) -> None:
        acknowledged = self._end_fetch(node.id)
        self._sessions[node.id].handle_error(error)
        self._fail(acknowledged, _failure(error, node))
        if isinstance(error, errors.UnsupportedVersionError):
            self._failure = _unsupported(node, error)
        self._let_rest(node.id)

    # --- answers to acknowledgements ---------------------------------------------------------------------------------

    def _acknowledged(self, node_id: int, operation: AcknowledgeOperation, response: ClientResponse) -> None:
        self._busy.discard(node_id)
        body: ShareAcknowledgeResponse = response.response_body
        error = errors.for_code(body.error_code, body.error_message)
        self._sessions[node_id].handle_response(error)
        if error is not None:
            if self._sessions[node_id].is_new or not isinstance(error, errors.RetriableError) or operation.is_last:
                operation.fail_all(error)
            else:
                self._back_off(operation)
        else:
            self._settle(node_id, operation, body)
        if operation.is_last:
            operation.fail_all(self._moved(node_id))
        self._client.managers.poll_soon()
        self._complete_if_done(node_id, operation)

    def _settle(self, node_id: int, operation: AcknowledgeOperation, body: ShareAcknowledgeResponse) -> None:
        """Complete what the broker has answered, and keep what is to be sent again."""
        moved: dict[TopicPartition, LeaderIdAndEpoch] = {}
        retried: PartitionAcknowledgements = {}
        lock_timeout_ms = body.acquisition_lock_timeout_ms or None
        for topic in body.responses:
            for data in topic.partitions:
                tip = self._names.get((topic.topic_id, data.partition_index))
                if tip is None or tip not in operation.waiting:
                    continue
                error = errors.for_code(data.error_code, data.error_message)
                self._note_leader(tip, error, data.current_leader, moved)
                if (
                    isinstance(error, errors.RetriableError)
                    and not isinstance(error, _LOCKS_GONE)
                    and not operation.is_last
                ):
                    retried[tip] = operation.waiting.pop(tip)
                else:
                    operation.complete(tip, error, lock_timeout_ms if error is None else None)
        operation.fail_all(errors.InvalidRecordStateError(f"broker {node_id} did not answer the acknowledgement"))
        if retried:
            operation.waiting = retried
            self._back_off(operation)
        self._update_leaders(moved, body.node_endpoints)

    def _back_off(self, operation: AcknowledgeOperation) -> None:
        operation.not_before_ms = self._clock.now_ms() + self._retry_backoff.backoff(operation.attempts - 1)

    def _acknowledge_failed(self, node_id: int, operation: AcknowledgeOperation, error: Exception) -> None:
        self._busy.discard(node_id)
        self._sessions[node_id].handle_error(error)
        node = self._metadata.fetch().node_by_id(node_id)
        operation.fail_all(_failure(error, node))
        self._client.managers.poll_soon()
        self._complete_if_done(node_id, operation)

    def _complete_if_done(self, node_id: int, operation: AcknowledgeOperation) -> None:
        if not operation.waiting:
            self._finish(node_id, operation)
            if not self._operations[node_id]:
                del self._operations[node_id]

    # --- leaders -----------------------------------------------------------------------------------------------------

    def _note_leader(
        self,
        tip: TopicIdPartition,
        error: errors.KafkaError | None,
        hint: ShareFetchResponse.LeaderIdAndEpoch | ShareAcknowledgeResponse.LeaderIdAndEpoch,
        moved: dict[TopicPartition, LeaderIdAndEpoch],
    ) -> None:
        """Note the leader that a broker names, if it is not the leader itself."""
        if isinstance(error, _LEADER_MOVED) and hint.leader_id != -1 and hint.leader_epoch != -1:
            moved[tip.topic_partition] = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
        elif isinstance(error, _LOCKS_GONE):
            self._metadata.request_update(False)

    def _update_leaders(
        self,
        moved: dict[TopicPartition, LeaderIdAndEpoch],
        endpoints: Iterable[ShareFetchResponse.NodeEndpoint | ShareAcknowledgeResponse.NodeEndpoint],
    ) -> None:
        """Update the metadata with the leaders that a response names, which saves a metadata request (KIP-951)."""
        if moved:
            nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in endpoints]
            self._metadata.update_partition_leadership(moved, nodes)

    # --- recovery ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Drop all sessions and the fetched data after an unexpected exception.

        The lost connections end the sessions, and the brokers release the locks.
        """
        error = errors.DisconnectError(
            f"a call of the consumer was interrupted, which ended its share sessions: {_AGAIN}"
        )
        for acknowledged in (*self._piggyback.values(), *self._in_fetches.values()):
            self._fail(acknowledged, error)
        for operations in self._operations.values():
            for operation in operations:
                operation.fail_all(error)
                operation.finish()
        self._buffer.clear()
        self._piggyback = {}
        self._in_fetches = {}
        self._operations = {}
        self._sessions = {}
        self._busy = set()
        self._rest_until_ms = {}
        self._is_fetching = False
        self._record_node_id = None


def _failure(error: Exception, node: Node | None) -> errors.KafkaError:
    """Return the error of acknowledgements whose request got no answer."""
    where = "the broker" if node is None else shown_node(node)
    if isinstance(error, errors.UnsupportedVersionError):
        return _unsupported(node, error)
    if isinstance(error, errors.DisconnectError):
        return errors.DisconnectError(
            f"whether {where} has received the acknowledgements is not known, as there was no answer ({error}). "
            "Records whose acknowledgements it has not received are delivered again"
        )
    return (
        error if isinstance(error, errors.KafkaError) else errors.KafkaError(f"a request to {where} failed: {error!r}")
    )


def _unsupported(node: Node | None, error: errors.UnsupportedVersionError) -> errors.UnsupportedVersionError:
    where = "a broker" if node is None else shown_node(node)
    return errors.UnsupportedVersionError(
        f"{where} cannot serve this share consumer: {error}. Share groups need Kafka 4.1 or later; "
        "AcknowledgeType.RENEW and share.acquire.mode=record_limit need Kafka 4.2"
    )
