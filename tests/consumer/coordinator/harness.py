"""A consumer's coordinator over a MockClient, and the responses of a group coordinator."""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pykclient.clock import Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.application_driver import ApplicationDriver, NetworkClientDelegate, UnsentRequest
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.coordinator.classic_rebalance import ClassicMembershipManager
from pykclient.consumer.coordinator.consumer_coordinator import ConsumerCoordinator, HeartbeatThread
from pykclient.consumer.coordinator.group_member import CoordinatedConsumer
from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
from pykclient.consumer.partition_assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    RangeAssignor,
    Subscription,
)
from pykclient.consumer.subscription_state import FetchPosition, SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy, ConsumerInterceptors, ConsumerRebalanceListener
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.client_request import ClientRequest, ClientResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupResponse
from pykclient.protocol.messages.offset_commit import OffsetCommitResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse
from pykclient.types import Node, OffsetAndMetadata, TopicPartition
from tests.consumer.responses import handle_usual, metadata_response, topic_id
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock

GROUP = "a-group"
MEMBER = "member-1"
TOPIC = "test"
TP0 = TopicPartition(TOPIC, 0)
TP1 = TopicPartition(TOPIC, 1)

NONE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 0, 16, 22, 25, 27
LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, GROUP_AUTHORIZATION_FAILED = 14, 15, 30
MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID = 79, 81, 82


class Listener(ConsumerRebalanceListener):
    """A listener that records its calls; subclasses may do more."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.failure: Exception | None = None
        self.on_revoked: Callable[[], object] = lambda: None
        self.on_assigned: Callable[[], object] = lambda: None

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._note("revoked", revoked)
        self.on_revoked()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._note("assigned", assigned)
        self.on_assigned()

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        self.told.append((what, sorted(partitions)))
        if self.failure is not None:
            raise self.failure


class SteppedThread(threading.Thread):
    """A thread that does not run: tests call ``run_once`` of the HeartbeatThread instead."""

    def __init__(self, run: Callable[[], object], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)

    def start(self) -> None:
        pass


class DrivenCoordinator:
    """A ConsumerCoordinator whose steps run at once, as in the calls of a KafkaConsumer."""

    def __init__(self, coordinator: ConsumerCoordinator, driver: ApplicationDriver) -> None:
        self.itself = coordinator
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.itself, name)
        if not inspect.isgeneratorfunction(found):
            return found
        return lambda *args, **kwargs: self._driver.run(found(*args, **kwargs))


class GroupHarness:
    """One group member, whose metadata has topic ``test`` with two partitions."""

    def __init__(
        self,
        *,
        assignors: Sequence[ConsumerPartitionAssignor] = (),
        auto_commit_interval_ms: int | None = None,
        partitions: Mapping[str, int] | None = None,
        interceptors: Sequence[object] = (),
        group: Mapping[str, Any] | None = None,
    ) -> None:
        self.clock = MockClock(auto_tick_ms=1)
        log_context = LogContext()
        config = ConsumerConfig({"bootstrap.servers": "localhost:9092", "metadata.max.age.ms": 10**9})
        self.subscriptions = SubscriptionState(log_context, AutoOffsetResetStrategy.EARLIEST)
        self.metadata = ConsumerMetadata(config, self.subscriptions, log_context)
        self.client = MockClient(self.clock, self.metadata)
        self.partitions = dict(partitions or {TOPIC: 2})
        self.client.update_metadata(metadata_response(self.partitions))
        self.network = NetworkClientDelegate(self.client, self.clock, 100, 5000, 3000)
        self.driver = ApplicationDriver(self.network, self.metadata, self.clock)
        self.metrics = Metrics(clock=self.clock)
        settings = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "heartbeat_interval_ms": 3_000,
            **(group or {}),
        }
        self.listener = Listener()
        coordinator = ConsumerCoordinator(
            GroupRebalanceConfig(GROUP, **settings),
            log_context,
            self.network,
            self.metrics,
            self.clock,
            CoordinatedConsumer(
                self.metadata,
                self.subscriptions,
                assignors or [RangeAssignor()],
                ConsumerInterceptors(interceptors, log_context),
                self.subscriptions.all_consumed,
                auto_commit_interval_ms,
            ),
            random.Random(1),
        )
        self.threads: list[SteppedThread] = []
        coordinator.heartbeat_thread.new_thread = self._thread
        self.coordinator: Any = DrivenCoordinator(coordinator, self.driver)

    def _thread(self, run: Callable[[], object], name: str) -> SteppedThread:
        self.threads.append(SteppedThread(run, name))
        return self.threads[-1]

    @property
    def member(self) -> ClassicMembershipManager:
        """The managers of a membership by the classic protocol."""
        member = self.coordinator.member
        assert isinstance(member, ClassicMembershipManager)
        return member

    @property
    def thread(self) -> HeartbeatThread:
        thread: HeartbeatThread = self.coordinator.heartbeat_thread
        return thread

    @property
    def node(self) -> Node:
        return self.metadata.fetch().nodes[0]

    @property
    def coordinator_node(self) -> Node:
        node: Node | None = self.coordinator.lookup.node
        assert node is not None
        return node

    def timer(self, timeout_ms: int = 10_000) -> Timer:
        return Timer(self.clock, timeout_ms)

    def metric(self, name: str) -> Any:
        found = [metric for key, metric in self.metrics.metrics.items() if key.name == name]
        return found[0].metric_value()

    # --- steps ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Send and receive without waiting."""
        self.driver.step(self.timer(0), wakeup=False)

    def prepare(self, *responses: Any) -> None:
        for response in responses:
            self.client.prepare_response(response)

    def find_coordinator(self) -> None:
        self.prepare(find_coordinator(self.node))
        assert self.coordinator.ensure_coordinator_ready(self.timer())

    def subscribe(self, *topics: str) -> None:
        self.subscriptions.subscribe(set(topics or (TOPIC,)), self.listener)

    def join(self, *partitions: TopicPartition, generation: int = 1, leader: bool = False) -> None:
        """Find the coordinator, join the group and be assigned ``partitions``."""
        if self.coordinator.lookup.node is None:
            self.prepare(find_coordinator(self.node))
        subscriptions = {MEMBER: [TOPIC]} if leader else {}
        self.prepare(join(generation, subscriptions=subscriptions), sync(*partitions))
        assert self.coordinator.poll(self.timer())

    def seek(self, tp: TopicPartition, offset: int) -> None:
        topic_id = self.metadata.topic_ids.get(tp.topic)
        position = FetchPosition(offset, None, self.metadata.current_leader(tp), topic_id)
        self.subscriptions.seek_validated(tp, position)

    def beat(self, error: int = NONE) -> int:
        """Let the heartbeat thread send a heartbeat and receive the response."""
        self.clock.advance(3_001)
        self.prepare(HeartbeatResponse(error_code=error))
        self.thread.run_once()
        return self.thread.run_once()

    def respond_in_flight(self, body: Any, matcher: Callable[[Any], bool] = lambda _: True) -> None:
        self.client.respond(body, matcher)
        self.step()


def message_of(request: UnsentRequest) -> Any:
    """Return the message of a request in the latest version."""
    return request.builder.build(request.builder.latest_allowed_version)


def answer(request: UnsentRequest, body: Any) -> None:
    """Complete a request that a manager returned."""
    builder = request.builder
    response = ClientResponse(builder.api_key, builder.latest_allowed_version, 0, None, "0", 0, 5, response_body=body)
    request.future.complete(response)


def receive(
    group: GroupHarness, request: UnsentRequest, body: Any, *, waits: bool = True, correlation_id: int = 1
) -> bool:
    """Let a response arrive; return True if a wait of the application for records goes on. ``waits``: there is one."""
    builder, now_ms = request.builder, group.clock.now_ms()
    version = builder.latest_allowed_version
    sent = ClientRequest("0", builder, correlation_id, "c", now_ms - 5, True, 30_000)
    group.network.awaits_records = waits
    is_usual = builder.shortcut is not None and handle_usual(builder.shortcut, sent, version, body, now_ms)
    group.network.awaits_records = False
    if not is_usual:
        request.future.complete(
            ClientResponse(builder.api_key, version, correlation_id, None, "0", now_ms - 5, now_ms, response_body=body)
        )
    return is_usual


def noting(sent: list[Any]) -> Callable[[Any], bool]:
    """Return a matcher that accepts any request and appends it to ``sent``."""

    def note(request: Any) -> bool:
        sent.append(request)
        return True

    return note


# --- answers -------------------------------------------------------------------------------------------------------


def find_coordinator(node: Node, error: int = NONE) -> FindCoordinatorResponse:
    coordinator = FindCoordinatorResponse.Coordinator(
        key=GROUP, node_id=node.id, host=node.host, port=node.port, error_code=error
    )
    return FindCoordinatorResponse(coordinators=[coordinator])


def join(
    generation: int = 1,
    member_id: str = MEMBER,
    *,
    subscriptions: Mapping[str, Sequence[str]] | None = None,
    protocol: str = "range",
    error: int = NONE,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """Return a JoinGroup response; with ``subscriptions`` of members, that of the leader."""
    members = [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=name, metadata=classic_rebalance.serialize_subscription(Subscription(topics))
        )
        for name, topics in (subscriptions or {}).items()
    ]
    return JoinGroupResponse(
        error_code=error,
        generation_id=generation,
        protocol_type="consumer" if not error else None,
        protocol_name=protocol if not error else None,
        leader=member_id if members else "another",
        member_id=member_id,
        members=members,
        skip_assignment=skip_assignment,
    )


def sync(*partitions: TopicPartition, error: int = NONE, protocol: str | None = "range") -> SyncGroupResponse:
    assignment = b"" if error else classic_rebalance.serialize_assignment(Assignment(partitions))
    return SyncGroupResponse(
        error_code=error, assignment=assignment, protocol_type="consumer" if not error else None, protocol_name=protocol
    )


def heartbeat(error: int = NONE) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


def leave(error: int = NONE) -> LeaveGroupResponse:
    return LeaveGroupResponse(members=[LeaveGroupResponse.MemberResponse(member_id=MEMBER, error_code=error)])


def commit(errors: Mapping[TopicPartition, int]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                topic_id=topic_id(tp.topic),
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=tp.partition, error_code=error)
                ],
            )
            for tp, error in errors.items()
        ]
    )


def committed(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    error: int = NONE,
    partition_errors: Mapping[TopicPartition, int] | None = None,
) -> OffsetFetchResponse:
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    codes = dict(partition_errors or {})
    topics = [
        group_topic(tp, offsets.get(tp, OffsetAndMetadata(-1)), codes.get(tp, NONE)) for tp in {**offsets, **codes}
    ]
    return OffsetFetchResponse(groups=[group(group_id=GROUP, error_code=error, topics=topics)])


def group_topic(
    tp: TopicPartition, offset: OffsetAndMetadata, error: int
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        topic_id=topic_id(tp.topic),
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=tp.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=error,
            )
        ],
    )
