"""The requests of group coordinators and partition leaders to share coordinators (Java: PersisterStateManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID

from pykclient.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NetworkError,
    NotCoordinatorError,
)
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from pykclient.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from pykclient.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from pykclient.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from pykclient.testing.inter_broker_requests import InterBrokerSendThread, RequestAndCompletionHandler
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState, ShareUpdate, StateBatch
from pykclient.topic_names import SHARE_GROUP_STATE_TOPIC_NAME
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.testing.broker_context import BrokerContext
    from pykclient.testing.inter_broker_requests import AutoTopicCreationManager
    from pykclient.testing.metadata_cache import MetadataCache
    from pykclient.testing.share.share_coordinator import ShareCoordinator

Partition = TypeVar("Partition")
Result = TypeVar("Result")


class Gatherer(Generic[Result]):
    """Collects the results of partitions, and passes them on by topic when all are there. Thread: loop."""

    __slots__ = ("_expected", "_results", "_then")

    def __init__(self, expected: int, then: Callable[[list[tuple[UUID, list[Result]]]], None]) -> None:
        self._expected = expected
        self._results: dict[UUID, list[Result]] = {}
        self._then = then
        if not expected:
            then([])

    def add(self, topic_id: UUID, result: Result) -> None:
        """Add the result of one partition."""
        self._results.setdefault(topic_id, []).append(result)
        self._expected -= 1
        if not self._expected:
            self._then(list(self._results.items()))


def for_each_partition(
    topics: Iterable[tuple[UUID, Iterable[Partition]]],
    handle: Callable[[UUID, Partition, Callable[[Result], None]], None],
    then: Callable[[list[tuple[UUID, list[Result]]]], None],
) -> None:
    """Handle all partitions of a request; call ``then`` with the results by topic when the last one is there."""
    partitions = [(topic_id, partition) for topic_id, of_topic in topics for partition in of_topic]
    gatherer: Gatherer[Result] = Gatherer(len(partitions), then)
    for topic_id, each in partitions:
        handle(topic_id, each, partial(gatherer.add, topic_id))


#: Called with an error code or 0, and the error's message.
ResultCallback = Callable[[int, str], None]
#: Called with an error code, its message and, if the code is 0, the state.
StateCallback = Callable[[int, str, ShareState | None], None]
#: Errors after which the request is sent again, to the coordinator of then.
_RETRIABLE = (
    NetworkError.code,
    NotCoordinatorError.code,
    CoordinatorNotAvailableError.code,
    CoordinatorLoadInProgressError.code,
)
_FIRST_BACKOFF_MS = 20
_MAX_BACKOFF_MS = 1_000


class _Operation:
    """A request for one share partition, until it is answered or its time is over. Thread: loop."""

    __slots__ = ("backoff_ms", "deadline_ms", "key", "request", "respond")

    def __init__(
        self, key: SharePartitionKey, request: RequestMessage, respond: StateCallback, deadline_ms: int
    ) -> None:
        self.key = key
        self.request = request
        self.respond = respond
        self.deadline_ms = deadline_ms
        self.backoff_ms = _FIRST_BACKOFF_MS


class Persister(InterBrokerSendThread):
    """Finds the share coordinator of each share partition, and sends it requests, with retries.

    The requests for one share partition are sent one after the other, so none can overtake another. The first request
    creates __share_group_state.

    Thread: loop
    """

    def __init__(
        self,
        broker: BrokerContext,
        metadata_cache: MetadataCache,
        auto_topic_creation: AutoTopicCreationManager,
        share_coordinator: ShareCoordinator,
    ) -> None:
        super().__init__(broker, "share-group-persister", broker.config.get_int("request.timeout.ms"))
        self._timeout_ms = broker.config.get_int("request.timeout.ms")
        self._metadata_cache = metadata_cache
        self._auto_topic_creation = auto_topic_creation
        self._share_coordinator = share_coordinator
        self._by_key: dict[SharePartitionKey, deque[_Operation]] = {}
        self._ready: list[_Operation] = []

    def shutdown(self) -> None:
        super().shutdown()
        self._by_key.clear()
        self._ready.clear()

    # --- operations

    def initialize_state(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, then: ResultCallback
    ) -> None:
        """Begin the state of a share partition, or reset it."""
        request = InitializeShareGroupStateRequest
        partition = request.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
        topic = request.InitializeStateData(topic_id=key.topic_id, partitions=[partition])
        message = request(group_id=key.group_id, topics=[topic])
        self._submit(key, message, lambda code, text, _: then(code, text))

    def read_state(self, key: SharePartitionKey, leader_epoch: int, then: StateCallback) -> None:
        """Read the state, as the leader in ``leader_epoch``."""
        request = ReadShareGroupStateRequest
        partition = request.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = request.ReadStateData(topic_id=key.topic_id, partitions=[partition])
        self._submit(key, request(group_id=key.group_id, topics=[topic]), then)

    def read_state_summary(self, key: SharePartitionKey, then: StateCallback) -> None:
        """Read the state without its batches."""
        request = ReadShareGroupStateSummaryRequest
        partition = request.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = request.ReadStateSummaryData(topic_id=key.topic_id, partitions=[partition])
        self._submit(key, request(group_id=key.group_id, topics=[topic]), then)

    def write_state(self, key: SharePartitionKey, update: ShareUpdate, then: ResultCallback) -> None:
        """Write a change of the state."""
        request = WriteShareGroupStateRequest
        partition = request.PartitionData(
            partition=key.partition,
            state_epoch=update.state_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=[
                request.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=delivery_count
                )
                for first, last, state, delivery_count in update.batches
            ],
        )
        topic = request.WriteStateData(topic_id=key.topic_id, partitions=[partition])
        message = request(group_id=key.group_id, topics=[topic])
        self._submit(key, message, lambda code, text, _: then(code, text))

    def delete_state(self, key: SharePartitionKey, then: ResultCallback) -> None:
        """Delete the state."""
        request = DeleteShareGroupStateRequest
        partition = request.PartitionData(partition=key.partition)
        topic = request.DeleteStateData(topic_id=key.topic_id, partitions=[partition])
        message = request(group_id=key.group_id, topics=[topic])
        self._submit(key, message, lambda code, text, _: then(code, text))

    # --- sending

    def _submit(self, key: SharePartitionKey, request: RequestMessage, respond: StateCallback) -> None:
        if not self._running:
            self.startup()
        operation = _Operation(key, request, respond, self._broker.loop.now_ms + self._timeout_ms)
        queue = self._by_key.setdefault(key, deque())
        queue.append(operation)
        if len(queue) == 1:
            self._send(operation)

    def _send(self, operation: _Operation) -> None:
        self._ready.append(operation)
        self.wakeup()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        ready, self._ready = self._ready, []
        for operation in ready:
            node = self._coordinator(operation.key)
            if node is None:
                self._retry(operation, CoordinatorNotAvailableError.code, "the share coordinator is not available")
                continue
            yield RequestAndCompletionHandler(
                self._broker.loop.now_ms,
                node,
                RequestBuilder(operation.request),
                lambda response, operation=operation: self._on_response(operation, response),  # type: ignore[misc]
            )

    def _coordinator(self, key: SharePartitionKey) -> Node | None:
        cache = self._metadata_cache
        if not cache.contains(SHARE_GROUP_STATE_TOPIC_NAME):
            self._auto_topic_creation.create_topics([SHARE_GROUP_STATE_TOPIC_NAME])
            return None
        number = self._share_coordinator.partition_for(key.coordinator_key)
        return cache.snapshot.leader(TopicPartition(SHARE_GROUP_STATE_TOPIC_NAME, number))

    def _on_response(self, operation: _Operation, response: ClientResponse) -> None:
        results = getattr(response.response_body, "results", None)
        if not results or not results[0].partitions:
            self._retry(operation, NetworkError.code, "the share coordinator did not answer")
            return
        result = results[0].partitions[0]
        if result.error_code in _RETRIABLE:
            self._retry(operation, result.error_code, result.error_message or "")
        else:
            self._complete(operation, result.error_code, result.error_message or "", _state_of(result))

    def _retry(self, operation: _Operation, error_code: int, message: str) -> None:
        if self._broker.loop.now_ms + operation.backoff_ms >= operation.deadline_ms:
            self._complete(operation, error_code, message, None)
            return
        self._broker.call_later(operation.backoff_ms, self._send, operation)
        operation.backoff_ms = min(2 * operation.backoff_ms, _MAX_BACKOFF_MS)

    def _complete(self, operation: _Operation, error_code: int, message: str, state: ShareState | None) -> None:
        queue = self._by_key[operation.key]
        queue.popleft()
        if queue:
            # It begins to wait only now.
            queue[0].deadline_ms = self._broker.loop.now_ms + self._timeout_ms
            self._send(queue[0])
        else:
            del self._by_key[operation.key]
        operation.respond(error_code, message, None if error_code else state)


def _state_of(result: object) -> ShareState | None:
    """Return the state in the result of a read, None in another result."""
    if isinstance(result, ReadShareGroupStateResponse.PartitionResult):
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ]
        return ShareState(0, result.state_epoch, -1, result.start_offset, -1, 0, 0, batches)
    if isinstance(result, ReadShareGroupStateSummaryResponse.PartitionResult):
        complete = result.delivery_complete_count
        return ShareState(0, result.state_epoch, result.leader_epoch, result.start_offset, complete, 0, 0)
    return None
