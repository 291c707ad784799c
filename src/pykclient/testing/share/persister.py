"""The requests of group coordinators and partition leaders to share coordinators (Java: PersisterStateManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from pykclient import errors
from pykclient.network.client_request import ClientResponse
from pykclient.protocol.message import Request as RequestMessage
from pykclient.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from pykclient.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from pykclient.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from pykclient.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.inter_broker_requests import AutoTopicCreationManager, InterBrokerSendThread
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState, StateBatch, state_batches_of
from pykclient.testing.share.share_coordinator import ShareCoordinator
from pykclient.topic_names import SHARE_GROUP_STATE_TOPIC_NAME
from pykclient.types import Node

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)


class Gathered(Generic[Key, Result]):
    """Collects one result for each key, and passes them on when all are there, in the order of keys. Thread: loop."""

    def __init__(self, keys: Iterable[Key], then: Callable[[dict[Key, Result]], None]) -> None:
        self._keys = tuple(keys)
        self._results: dict[Key, Result] = {}
        self._then = then
        if not self._keys:
            then({})

    def add(self, key: Key, result: Result) -> None:
        """Add the result of one key."""
        self._results[key] = result
        if len(self._results) == len(self._keys):
            self._then({key: self._results[key] for key in self._keys})

    def add_code(self: Gathered[Key, int], key: Key, code: int, message: str) -> None:  # noqa: ARG002
        """Add an error code or 0, which a ``ResultCallback`` gets with a message."""
        self.add(key, code)


#: Called with an error code or 0, and the error's message.
ResultCallback = Callable[[int, str], None]
#: Called with an error code, its message and, if the code is 0, the state.
StateCallback = Callable[[int, str, ShareState | None], None]
#: Errors after which the request is sent again, to the coordinator of then.
_RETRIABLE = (
    errors.NetworkError.code,
    errors.NotCoordinatorError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.CoordinatorLoadInProgressError.code,
)
_FIRST_BACKOFF_MS = 20
_MAX_BACKOFF_MS = 1_000


@dataclass(slots=True)
class _Operation:
    """A request for one share partition, until it is answered or its time is over. Thread: loop."""

    key: SharePartitionKey
    request: RequestMessage
    respond: StateCallback
    deadline_ms: int
    backoff_ms: int = _FIRST_BACKOFF_MS


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

    def shutdown(self) -> None:
        super().shutdown()
        self._by_key.clear()

    # --- operations

    def initialize_state(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, then: ResultCallback
    ) -> None:
        """Begin the state of a share partition, or reset it."""
        request = InitializeShareGroupStateRequest
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        self._submit(key, request, request.InitializeStateData, fields, without_state(then))

    def read_state(self, key: SharePartitionKey, leader_epoch: int, then: StateCallback) -> None:
        """Read the state, as the leader in ``leader_epoch``."""
        request = ReadShareGroupStateRequest
        self._submit(key, request, request.ReadStateData, {"leader_epoch": leader_epoch}, then)

    def read_state_summary(self, key: SharePartitionKey, then: StateCallback) -> None:
        """Read the state without its batches."""
        request = ReadShareGroupStateSummaryRequest
        self._submit(key, request, request.ReadStateSummaryData, {"leader_epoch": -1}, then)

    def write_state(
        self, key: SharePartitionKey, batches: Iterable[StateBatch], then: ResultCallback, **fields: int
    ) -> None:
        """Write a change of the state: ``batches``, and the other ``fields`` of the request."""
        request = WriteShareGroupStateRequest
        state_batches = [request.StateBatch(**batch._asdict()) for batch in batches]
        self._submit(
            key, request, request.WriteStateData, {**fields, "state_batches": state_batches}, without_state(then)
        )

    def delete_state(self, key: SharePartitionKey, then: ResultCallback) -> None:
        """Delete the state."""
        request = DeleteShareGroupStateRequest
        self._submit(key, request, request.DeleteStateData, {}, without_state(then))

    # --- sending

    def _submit(
        self, key: SharePartitionKey, request: Any, topic_data: Any, fields: Mapping[str, Any], respond: StateCallback
    ) -> None:
        """Queue a request for one partition, whose data has these ``fields``."""
        partition = request.PartitionData(partition=key.partition, **fields)
        topic = topic_data(topic_id=key.topic_id, partitions=[partition])
        message = request(group_id=key.group_id, topics=[topic])
        operation = _Operation(key, message, respond, self._broker.loop.now_ms + self._timeout_ms)
        queue = self._by_key.setdefault(key, deque())
        queue.append(operation)
        if len(queue) == 1:
            self._send(operation)

    def _send(self, operation: _Operation) -> None:
        node = self._coordinator(operation.key)
        if node is None:
            self._retry(operation, errors.CoordinatorNotAvailableError.code, "the share coordinator is not available")
        else:
            self.send(node, operation.request, partial(self._on_response, operation))

    def _coordinator(self, key: SharePartitionKey) -> Node | None:
        cache = self._metadata_cache
        if not cache.contains(SHARE_GROUP_STATE_TOPIC_NAME):
            self._auto_topic_creation.create_topics([SHARE_GROUP_STATE_TOPIC_NAME])
            return None
        return cache.snapshot.leader(self._share_coordinator.storage.topic_partition_for(key.coordinator_key))

    def _on_response(self, operation: _Operation, response: ClientResponse) -> None:
        results = getattr(response.response_body, "results", None)
        if not results or not results[0].partitions:
            self._retry(operation, errors.NetworkError.code, "the share coordinator did not answer")
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


def without_state(then: ResultCallback) -> StateCallback:
    """Return a callback for a request whose response has no state."""
    return lambda code, message, _: then(code, message)


def _state_of(result: object) -> ShareState | None:
    """Return the state in the result of a read, None in another result."""
    if isinstance(result, ReadShareGroupStateResponse.PartitionResult):
        return ShareState(0, result.state_epoch, -1, result.start_offset, -1, 0, 0, state_batches_of(result))
    if isinstance(result, ReadShareGroupStateSummaryResponse.PartitionResult):
        complete = result.delivery_complete_count
        return ShareState(0, result.state_epoch, result.leader_epoch, result.start_offset, complete, 0, 0)
    return None
