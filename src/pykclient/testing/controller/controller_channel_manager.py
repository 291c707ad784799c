"""The channel from the controller to the brokers (Java: ControllerChannelManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from pykclient.errors import IllegalStateError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.message import Request
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.controller.controller_context import ControllerContext
from pykclient.testing.coordination.znodes import LEADER_DURING_DELETE
from pykclient.testing.inter_broker_requests import InterBrokerSendThread, RequestAndCompletionHandler, grouped
from pykclient.types import Node, TopicPartition

#: The wait before a request is sent again to a broker that did not respond.
_RETRY_BACKOFF_MS: Final = 100

_PLAINTEXT: Final = 0

# Java: AbstractControlRequest.Type.
INCREMENTAL: Final = 1
FULL: Final = 2


_State = TypeVar("_State")


class QueueItem(NamedTuple):
    """A request for one broker, and the callback for its response."""

    request: Request
    callback: Callable[[object], None]


class RequestSendThread(InterBrokerSendThread):
    """Sends the controller's requests to one broker, in order, retrying each until it gets a response. Thread: loop."""

    def __init__(self, broker: BrokerContext, destination: Node) -> None:
        super().__init__(
            broker, f"controller-to-{destination.id}", broker.config.get_int("controller.socket.timeout.ms")
        )
        self._destination = destination
        self._queue: deque[QueueItem] = deque()
        self._resting_until_ms = 0

    def shutdown(self) -> None:
        super().shutdown()
        self._queue.clear()

    @property
    def queue_size(self) -> int:
        """The number of unanswered requests."""
        return len(self._queue)

    def enqueue(self, item: QueueItem) -> None:
        self._queue.append(item)
        self.wakeup()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        if not self._queue or self._unsent or self._network_client.in_flight_request_count() > 0:
            return ()
        now_ms = self._broker.loop.now_ms
        if now_ms < self._resting_until_ms:
            self._wake_at(self._resting_until_ms)
            return ()
        # It stays at the head of the queue until it is answered.
        request = RequestBuilder(self._queue[0].request)
        return (RequestAndCompletionHandler(now_ms, self._destination, request, self._handle_response),)

    def _handle_response(self, response: ClientResponse) -> None:
        if response.response_body is None:
            self._log.info(
                "Controller: broker %d did not accept a request, which is retried: %r", self._destination.id, response
            )
            self._resting_until_ms = self._broker.loop.now_ms + _RETRY_BACKOFF_MS
            self.wakeup()
            return
        item = self._queue.popleft()
        item.callback(response.response_body)
        if self._queue:
            self.wakeup()


class ControllerChannelManager:
    """One ``RequestSendThread`` for each live broker, including the controller's own. Thread: loop."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._threads: dict[int, RequestSendThread] = {}

    def add_broker(self, node: Node) -> None:
        thread = self._threads[node.id] = RequestSendThread(self._broker, node)
        thread.startup()

    def remove_broker(self, id: int) -> None:
        thread = self._threads.pop(id, None)
        if thread is not None:
            thread.shutdown()

    def shutdown(self) -> None:
        for id in list(self._threads):
            self.remove_broker(id)

    def send_request(self, id: int, request: Request, callback: Callable[[object], None]) -> None:
        """Queue a request for a broker; do nothing if the broker is gone."""
        thread = self._threads.get(id)
        if thread is not None:
            thread.enqueue(QueueItem(request, callback))

    @property
    def idle(self) -> bool:
        """True if all brokers have responded to all requests."""
        return all(thread.queue_size == 0 for thread in self._threads.values())


@dataclass(eq=False, repr=False)
class ControllerBrokerRequestBatch:
    """Collects the effects of one change, and sends each broker its part.

    A broker gets LEADER_AND_ISR first, then UPDATE_METADATA, then STOP_REPLICA. Thread: loop.
    """

    _broker: BrokerContext
    _context: ControllerContext
    _channel_manager: ControllerChannelManager
    _on_leader_and_isr_response: Callable[[int, LeaderAndIsrResponse], None]
    _on_stop_replica_response: Callable[[int, StopReplicaResponse, Collection[TopicPartition]], None]

    def __post_init__(self) -> None:
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrRequest.LeaderAndIsrPartitionState]] = {}
        self._full: dict[int, None] = {}  # brokers that get the complete list of their replicas
        self._stop_replica: dict[int, dict[TopicPartition, StopReplicaRequest.StopReplicaPartitionState]] = {}
        self._update_metadata_brokers: dict[int, None] = {}
        self._update_metadata: dict[TopicPartition, UpdateMetadataRequest.UpdateMetadataPartitionState] = {}

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Send each live broker the requests that the block adds, unless it raises.

        Raises:
            IllegalStateError: the previous batch was not sent.
        """
        if self._leader_and_isr or self._stop_replica or self._update_metadata_brokers:
            raise IllegalStateError("the previous changes of the controller were not sent to the brokers")
        try:
            yield
            self._send_leader_and_isr()
            self._send_update_metadata()
            self._send_stop_replica()
        finally:
            self.clear()

    def clear(self) -> None:
        self._leader_and_isr.clear()
        self._full.clear()
        self._stop_replica.clear()
        self._update_metadata_brokers.clear()
        self._update_metadata.clear()

    # --- gathering -------------------------------------------------------------------------------------------------

    def add_leader_and_isr_request_for_brokers(
        self, broker_ids: Iterable[int], topic_partition: TopicPartition, is_new: bool
    ) -> None:
        """Make these brokers leader or followers, and inform all brokers."""
        state, controller_epoch = self._context.leadership[topic_partition]
        assignment = self._context.assignment(topic_partition)
        for id in broker_ids:
            states = self._leader_and_isr.setdefault(id, {})
            previous = states.get(topic_partition)
            states[topic_partition] = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                topic_name=topic_partition.topic,
                partition_index=topic_partition.partition,
                controller_epoch=controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                partition_epoch=state.partition_epoch,
                replicas=assignment.replicas,
                adding_replicas=assignment.adding_replicas,
                removing_replicas=assignment.removing_replicas,
                is_new=is_new or (previous is not None and previous.is_new),
                leader_recovery_state=state.leader_recovery_state,
            )
        self.add_update_metadata_request_for_brokers(self._context.live_or_shutting_down_broker_ids, (topic_partition,))

    def set_full(self, broker_ids: Iterable[int]) -> None:
        """Mark the LEADER_AND_ISR of these brokers as complete: their other replicas belong to deleted topics."""
        for id in broker_ids:
            self._full[id] = None
            self._leader_and_isr.setdefault(id, {})

    def add_stop_replica_request(self, id: int, topic_partition: TopicPartition, delete_partition: bool) -> None:
        states = self._stop_replica.setdefault(id, {})
        previous = states.get(topic_partition)
        states[topic_partition] = StopReplicaRequest.StopReplicaPartitionState(
            partition_index=topic_partition.partition,
            leader_epoch=self._context.leader_epoch(topic_partition),
            delete_partition=delete_partition or (previous is not None and previous.delete_partition),
        )

    def add_update_metadata_request_for_brokers(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Inform these brokers which brokers are alive, and of these partitions (even if they are being deleted)."""
        context = self._context
        self._update_metadata_brokers.update(dict.fromkeys(broker_ids))
        for topic_partition in partitions:
            info = context.leadership.get(topic_partition)
            if info is None:
                continue  # no leader is elected yet; the broker is informed when there is one
            state = info.leader_and_isr
            replicas = context.replicas(topic_partition)
            deleting = context.is_topic_queued_up_for_deletion(topic_partition.topic)
            self._update_metadata[topic_partition] = UpdateMetadataRequest.UpdateMetadataPartitionState(
                topic_name=topic_partition.topic,
                partition_index=topic_partition.partition,
                controller_epoch=info.controller_epoch,
                leader=LEADER_DURING_DELETE if deleting else state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                zk_version=state.partition_epoch,
                replicas=replicas,
                offline_replicas=[id for id in replicas if not context.is_replica_online(id, topic_partition)],
            )

    # --- sending ---------------------------------------------------------------------------------------------------

    def send_update_metadata(self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Inform brokers of the live brokers, and of the state of some partitions. This is a batch of its own."""
        with self.batch():
            self.add_update_metadata_request_for_brokers(broker_ids, partitions)

    def _send(
        self, id: int, request_class: Callable[..., Request], callback: Callable[[object], None], **fields: object
    ) -> None:
        """Send a request to a broker, if it is alive."""
        context = self._context
        if id in context.live_brokers:
            request = request_class(
                controller_id=self._broker.id,
                controller_epoch=context.epoch,
                broker_epoch=context.live_broker_epochs[id],
                **fields,
            )
            self._channel_manager.send_request(id, request, callback)

    def _send_leader_and_isr(self) -> None:
        context = self._context
        for id, states in self._leader_and_isr.items():
            leaders = dict.fromkeys(state.leader for state in states.values())
            live_leaders = [context.live_brokers[leader] for leader in leaders if leader in context.live_brokers]
            self._send(
                id,
                LeaderAndIsrRequest,
                partial(self._leader_and_isr_answered, id),
                type=FULL if id in self._full else INCREMENTAL,
                topic_states=[
                    LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name=topic, topic_id=context.topic_id(topic), partition_states=of_topic
                    )
                    for topic, of_topic in _by_topic(states)
                ],
                live_leaders=[
                    LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=n.id, host_name=n.host, port=n.port)
                    for n in live_leaders
                ],
            )

    def _leader_and_isr_answered(self, id: int, response: object) -> None:
        if isinstance(response, LeaderAndIsrResponse):
            self._on_leader_and_isr_response(id, response)

    def _send_update_metadata(self) -> None:
        context = self._context
        if not self._update_metadata_brokers:
            return
        live_brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=node.id,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=node.port, host=node.host, listener="PLAINTEXT", security_protocol=_PLAINTEXT
                    )
                ],
                rack=node.rack,
            )
            for node in context.live_brokers.values()
        ]
        topics = [
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=topic, topic_id=context.topic_id(topic), partition_states=states
            )
            for topic, states in _by_topic(self._update_metadata)
        ]
        for id in self._update_metadata_brokers:
            callback = partial(self._update_metadata_answered, id)
            self._send(id, UpdateMetadataRequest, callback, topic_states=topics, live_brokers=live_brokers)

    def _update_metadata_answered(self, id: int, response: object) -> None:
        if isinstance(response, UpdateMetadataResponse) and response.error_code:
            log = self._broker.log_context.logger(__name__)
            log.info("Controller: broker %d refused UPDATE_METADATA with code %d", id, response.error_code)

    def _send_stop_replica(self) -> None:
        for id, states in self._stop_replica.items():
            topics = [
                StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=of_topic)
                for topic, of_topic in _by_topic(states)
            ]
            deleted = [topic_partition for topic_partition, state in states.items() if state.delete_partition]
            self._send(id, StopReplicaRequest, self._stop_replica_callback(id, deleted), topic_states=topics)

    def _stop_replica_callback(self, id: int, deleted: Collection[TopicPartition]) -> Callable[[object], None]:
        epoch = self._context.live_broker_epochs.get(id)

        def callback(response: object) -> None:
            # A broker that has registered again since refuses the request. Its registration has resumed the deletion,
            # and the refusal must not halt that again.
            is_current = self._context.live_broker_epochs.get(id) == epoch
            if is_current and deleted and isinstance(response, StopReplicaResponse):
                self._on_stop_replica_response(id, response, deleted)

        return callback


def _by_topic(states: Mapping[TopicPartition, _State]) -> Iterable[tuple[str, list[_State]]]:
    return grouped((topic_partition.topic, state) for topic_partition, state in states.items()).items()
