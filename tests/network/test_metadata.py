"""Metadata: versions, epochs, ids, retention, backoff, errors (after Java's MetadataTest)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from pykclient import errors
from pykclient.errors import (
    AuthenticationError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    TopicAuthorizationError,
)
from pykclient.log_context import LogContext
from pykclient.network.metadata import (
    ClusterResource,
    ClusterResourceListeners,
    LeaderAndEpoch,
    LeaderIdAndEpoch,
    Metadata,
    MetadataRequestBuilder,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.types import Node, TopicPartition

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition
ZERO = uuid.UUID(int=0)
BACKOFF_MS, EXPIRE_MS = 100, 1_000
NODES = [Node(id, f"10.0.0.{id}", 9092, rack=f"r{id}") for id in range(3)]


def make(**options: object) -> Metadata:
    return Metadata(BACKOFF_MS, BACKOFF_MS, EXPIRE_MS, LogContext(), **options)  # type: ignore[arg-type]


def partition(index: int, leader: int = 0, epoch: int = 1, error: int = 0) -> Partition:
    return Partition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        error_code=error,
        replica_nodes=[0, 1, 2],
        isr_nodes=[0, 1],
        offline_replicas=[2],
    )


def topic(
    name: str, partitions: int = 1, *, epoch: int = 1, id: uuid.UUID = ZERO, error: int = 0, internal: bool = False
) -> Topic:
    found = [] if error else [partition(index, epoch=epoch) for index in range(partitions)]
    return Topic(name=name, topic_id=id, error_code=error, is_internal=internal, partitions=found)


def response(*topics: Topic, nodes: list[Node] | None = None, cluster_id: str | None = "c") -> MetadataResponse:
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in (NODES if nodes is None else nodes)
    ]
    return MetadataResponse(brokers=brokers, cluster_id=cluster_id, controller_id=1, topics=list(topics))


def update(metadata: Metadata, *topics: Topic, now_ms: int = 0, partial: bool = False) -> None:
    metadata.update_with_current_request_version(response(*topics), partial, now_ms)


T0 = TopicPartition("t", 0)


def test_bootstrap_requests_first_update() -> None:
    metadata = make()
    metadata.bootstrap([("a", 1), ("b", 2)])
    cluster = metadata.fetch()
    assert cluster.is_bootstrap_configured
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(-1, "a", 1), (-2, "b", 2)]
    assert metadata.update_requested
    assert metadata.time_to_next_update(0) == 0
    version = metadata.update_version
    update(metadata, topic("t", 2))
    cluster = metadata.fetch()
    assert not cluster.is_bootstrap_configured
    assert metadata.update_version == version + 1
    assert not metadata.update_requested
    assert cluster.cluster_resource.cluster_id == "c"
    assert cluster.nodes == tuple(NODES)
    assert cluster.controller == NODES[1]
    assert cluster.partition_count_for_topic("t") == 2
    info = cluster.partition(T0)
    assert info is not None
    assert info.leader == NODES[0]
    assert info.replicas == tuple(NODES)
    assert info.in_sync_replicas == tuple(NODES[:2])
    assert info.offline_replicas == (NODES[2],)
    metadata.rebootstrap()
    assert metadata.fetch().is_bootstrap_configured
    assert metadata.update_requested


def test_update_after_close_is_an_error() -> None:
    metadata = make()
    metadata.close()
    assert metadata.is_closed
    with pytest.raises(IllegalStateError):
        update(metadata)


# --- when to ask -----------------------------------------------------------------------------------------------------


def test_metadata_expires_by_age() -> None:
    metadata = make()
    update(metadata, now_ms=50)
    assert metadata.time_to_next_update(50) == EXPIRE_MS
    assert metadata.time_to_next_update(60) == EXPIRE_MS - 10
    assert metadata.time_to_next_update(50 + EXPIRE_MS) == 0
    assert metadata.last_successful_update == 50


@pytest.mark.parametrize(
    "require",
    [
        lambda metadata: metadata.request_update(False),
        lambda metadata: metadata.request_update_for_new_topics(),
        lambda metadata: metadata.bootstrap([("a", 1)]),
        lambda metadata: metadata.update_last_seen_epoch_if_newer(T0, 9),
        lambda metadata: update(metadata, topic("t", error=errors.LeaderNotAvailableError.code), now_ms=60),
        lambda metadata: metadata.update(-1, response(topic("t", epoch=1)), False, 60),
    ],
    ids=["request", "new topics", "bootstrap", "newer epoch", "response with an error", "response before a new topic"],
)
def test_required_update_ignores_age_of_metadata(require: Callable[[Metadata], object]) -> None:
    metadata = make()
    update(metadata, topic("t", epoch=1), now_ms=50)
    assert metadata.time_to_next_update(50) == EXPIRE_MS
    assert 50 < metadata.quiet_until_ms <= 50 + EXPIRE_MS
    require(metadata)
    assert metadata.update_requested
    assert metadata.quiet_until_ms < 0


def test_requested_update_waits_for_the_backoff() -> None:
    metadata = make()
    update(metadata, topic("t", epoch=1), now_ms=0)
    assert metadata.request_update(True) == metadata.update_version
    assert metadata.time_to_next_update(0) == BACKOFF_MS
    assert metadata.time_to_next_update(BACKOFF_MS) == 0


def test_a_new_topic_does_not_wait() -> None:
    metadata = make()
    update(metadata, now_ms=0)
    version = metadata.request_update_for_new_topics()
    assert version == metadata.update_version
    assert metadata.time_to_next_update(0) == 0


def test_failed_updates_back_off() -> None:
    metadata = Metadata(100, 10_000, 300_000, LogContext(), rng=random.Random(1))
    metadata.bootstrap([("a", 1)])
    now_ms = 0
    for attempt in range(6):
        metadata.failed_update(now_ms)
        delay_ms = metadata.time_to_next_update(now_ms)
        assert 80 * 2**attempt - 1 <= delay_ms <= min(120 * 2**attempt, 10_000)
        now_ms += 20_000
    update(metadata, topic("t"), now_ms=now_ms)
    metadata.request_update(True)
    assert metadata.time_to_next_update(now_ms) <= 120


def test_responses_without_news_back_off() -> None:
    metadata = Metadata(100, 10_000, 300_000, LogContext(), rng=random.Random(1))
    update(metadata, topic("t", epoch=1), now_ms=0)
    delays = []
    for turn in range(1, 5):
        now_ms = turn * 20_000
        update(metadata, topic("t", epoch=1), now_ms=now_ms)
        metadata.request_update(False)
        delays.append(metadata.time_to_next_update(now_ms))
    assert delays[3] > 3 * delays[0]
    metadata.request_update(True)
    assert metadata.time_to_next_update(now_ms) <= 120
    update(metadata, topic("t", epoch=2), now_ms=100_000)  # a new epoch counts as a change
    metadata.request_update(False)
    assert metadata.time_to_next_update(100_000) <= 120


def test_topic_added_during_request_needs_another_request() -> None:
    metadata = make()
    metadata.bootstrap([("a", 1)])
    sent = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    metadata.update(sent.request_version, response(topic("t")), sent.is_partial_update, 0)
    assert metadata.update_requested
    sent = metadata.new_metadata_request_and_version(0)
    metadata.update(sent.request_version, response(topic("t")), sent.is_partial_update, 0)
    assert not metadata.update_requested


class NewTopics(Metadata):
    def new_metadata_request_builder_for_new_topics(self) -> MetadataRequestBuilder | None:
        return MetadataRequestBuilder.for_topic_names(["new"], True)


def test_new_topics_are_requested_by_partial_update() -> None:
    metadata = NewTopics(BACKOFF_MS, BACKOFF_MS, EXPIRE_MS, LogContext())
    metadata.bootstrap([("a", 1)])
    assert not metadata.new_metadata_request_and_version(0).is_partial_update  # nothing is known yet
    update(metadata, now_ms=0)
    metadata.request_update_for_new_topics()
    request = metadata.new_metadata_request_and_version(0)
    assert request.is_partial_update
    assert isinstance(request.request_builder, MetadataRequestBuilder)
    assert request.request_builder.topics == ["new"]
    metadata.request_update(True)
    full = metadata.new_metadata_request_and_version(0)
    assert not full.is_partial_update
    assert isinstance(full.request_builder, MetadataRequestBuilder)
    assert full.request_builder.request.topics is None
    metadata.update(full.request_version, response(), False, 0)
    metadata.request_update_for_new_topics()
    assert not metadata.new_metadata_request_and_version(EXPIRE_MS).is_partial_update  # too old for a partial update


def test_a_partial_update_leaves_age_and_full_requests_alone() -> None:
    metadata = make()
    update(metadata, topic("a"), now_ms=0)
    metadata.request_update(True)
    update(metadata, topic("b"), now_ms=500, partial=True)
    assert metadata.update_requested
    assert metadata.last_successful_update == 0
    assert metadata.fetch().topics == {"a", "b"}


# --- leader epochs ---------------------------------------------------------------------------------------------------


def test_an_older_epoch_does_not_replace_a_newer_one() -> None:
    metadata = make()
    update(metadata, topic("t", epoch=10))
    assert metadata.last_seen_leader_epoch(T0) == 10
    older = response(topic("t", epoch=9))
    older.topics[0].partitions[0].leader_id = 2
    metadata.update_with_current_request_version(older, False, 1)
    assert metadata.fetch().leader_for(T0) == NODES[0]
    assert metadata.last_seen_leader_epoch(T0) == 10
    newer = response(topic("t", epoch=11))
    newer.topics[0].partitions[0].leader_id = 2
    metadata.update_with_current_request_version(newer, False, 2)
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[2], 11)


def ask_for(metadata: Metadata, epoch: int, duration_ms: int, start_ms: int = 0, every_ms: int = 500) -> None:
    """Apply responses with this epoch, from ``start_ms`` to ``start_ms + duration_ms``."""
    for now_ms in range(start_ms, start_ms + duration_ms + 1, every_ms):
        update(metadata, topic("t", epoch=epoch), now_ms=now_ms)


def test_a_lower_epoch_that_metadata_keeps_telling_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    """A lower epoch that brokers report for a minute is accepted.

    The topic was recreated in a cluster without topic ids, or a commit had the epoch of a deleted topic.
    """
    metadata = Metadata(BACKOFF_MS, BACKOFF_MS, 300_000, LogContext())
    update(metadata, topic("t", epoch=10))
    ask_for(metadata, 2, 59_500)
    assert metadata.update_requested
    assert metadata.time_to_next_update(59_500) > 0  # backoff
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], 10)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "t-0" in caplog.text
    ask_for(metadata, 2, 500, start_ms=60_000)
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], 2)
    assert metadata.last_seen_leader_epoch(T0) == 2
    assert not metadata.update_requested
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_repeated_lower_epoch_is_accepted_after_metadata_max_age() -> None:
    metadata = make()  # with metadata.max.age.ms=1000
    update(metadata, topic("t", epoch=10))
    assert metadata.why_leader_is_unknown(T0) is None
    assert metadata.update_last_seen_epoch_if_newer(T0, 11)
    ask_for(metadata, 10, 500)
    assert metadata.current_leader(T0) == LeaderAndEpoch(None, 11)
    assert "leader epoch 10, but" in (metadata.why_leader_is_unknown(T0) or "")
    ask_for(metadata, 10, 0, start_ms=1_000)
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], 10)
    assert metadata.why_leader_is_unknown(T0) is None


def test_lower_epoch_under_same_topic_id_is_never_accepted(caplog: pytest.LogCaptureFixture) -> None:
    """Under one topic id, epochs only rise. An epoch that came from a commit may be that of a deleted topic, though."""
    metadata = make()
    id = uuid.uuid4()
    for now_ms in (0, 1):
        update(metadata, topic("t", epoch=10, id=id), now_ms=now_ms)
    for now_ms in range(1_000, 100_000, 1_000):
        update(metadata, topic("t", epoch=9, id=id), now_ms=now_ms)
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], 10)
    assert ["cut off" in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]
    assert metadata.update_last_seen_epoch_if_newer(T0, 11)
    for now_ms in range(200_000, 202_001, 500):
        update(metadata, topic("t", epoch=10, id=id), now_ms=now_ms)
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], 10)


def test_epochs_restart_with_new_topic_id() -> None:
    metadata = make()
    update(metadata, topic("t", epoch=10, id=uuid.uuid4()))
    id = uuid.uuid4()
    for now_ms, epoch in ((1, 3), (2, 4), (3, 3)):
        update(metadata, topic("t", epoch=epoch, id=id), now_ms=now_ms)
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], 4)


def test_two_distant_responses_do_not_confirm_lower_epoch() -> None:
    metadata = make()
    update(metadata, topic("t", epoch=10))
    ask_for(metadata, 2, 100_000, every_ms=100_000)
    assert metadata.last_seen_leader_epoch(T0) == 10


@pytest.mark.parametrize("epoch", [10, 11])
def test_response_with_newest_epoch_resets_count_of_lower_ones(epoch: int) -> None:
    """A response with the newest epoch restarts the wait, because some brokers lag behind others."""
    metadata = make()
    update(metadata, topic("t", epoch=10))
    ask_for(metadata, 2, 500)
    update(metadata, topic("t", epoch=epoch), now_ms=700)
    ask_for(metadata, 2, 500, start_ms=1_000)
    assert metadata.last_seen_leader_epoch(T0) == epoch


def test_older_epoch_of_same_topic_is_ignored_after_rebootstrap() -> None:
    metadata = make()
    metadata.bootstrap([("a", 1)])
    id = uuid.uuid4()
    update(metadata, topic("t", epoch=2, id=id))
    metadata.rebootstrap()
    update(metadata, topic("t", epoch=0, id=id))  # from a broker that is cut off from the cluster
    assert metadata.current_leader(T0).leader is None
    assert metadata.last_seen_leader_epoch(T0) == 2
    assert metadata.update_requested
    update(metadata, topic("t", epoch=2, id=id))
    assert metadata.current_leader(T0).leader is not None
    metadata.rebootstrap()
    update(metadata, topic("t", epoch=0, id=uuid.uuid4()))  # another topic
    assert metadata.last_seen_leader_epoch(T0) == 0


def test_a_new_topic_id_starts_epochs_afresh() -> None:
    metadata = make()
    first, second = uuid.uuid4(), uuid.uuid4()
    update(metadata, topic("t", epoch=10, id=first))
    update(metadata, topic("t", epoch=5, id=first))
    assert metadata.last_seen_leader_epoch(T0) == 10
    update(metadata, topic("t", epoch=3, id=second))
    assert metadata.last_seen_leader_epoch(T0) == 3
    assert metadata.topic_ids == {"t": second}
    assert metadata.topic_names == {second: "t"}
    update(metadata, topic("t", epoch=2))  # a broker too old for topic ids sends none
    assert metadata.last_seen_leader_epoch(T0) == 3
    assert metadata.topic_ids == {}
    update(metadata, topic("t", epoch=1, id=second))  # still the same topic
    assert metadata.last_seen_leader_epoch(T0) == 3


def test_response_without_epoch_clears_known_epoch() -> None:
    metadata = make()
    update(metadata, topic("t", epoch=10))
    update(metadata, topic("t", epoch=-1))
    assert metadata.last_seen_leader_epoch(T0) is None
    assert metadata.current_leader(T0) == LeaderAndEpoch(NODES[0], None)


def test_newer_epoch_seen_elsewhere_requests_update() -> None:
    metadata = make()
    assert not metadata.update_last_seen_epoch_if_newer(T0, 5)  # nothing to compare with
    update(metadata, topic("t", epoch=10))
    assert not metadata.update_last_seen_epoch_if_newer(T0, 10)
    assert metadata.partition_metadata_if_current(T0) is not None
    assert metadata.update_last_seen_epoch_if_newer(T0, 11)
    assert metadata.update_requested
    assert metadata.partition_metadata_if_current(T0) is None
    assert metadata.current_leader(T0) == LeaderAndEpoch(None, 11)
    with pytest.raises(IllegalArgumentError):
        metadata.update_last_seen_epoch_if_newer(T0, -1)
    assert metadata.current_leader(TopicPartition("other", 0)) == LeaderAndEpoch(None, None)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30))
def test_the_known_epoch_never_falls(steps: list[tuple[int, bool]]) -> None:
    metadata = make()
    highest = -1
    for epoch, elsewhere in steps:
        if elsewhere:
            newer = metadata.update_last_seen_epoch_if_newer(T0, epoch)
            assert newer == (highest >= 0 and epoch > highest)
            highest = max(highest, epoch) if newer else highest
        else:
            update(metadata, topic("t", epoch=epoch))
            highest = max(highest, epoch)
        assert (metadata.last_seen_leader_epoch(T0) or 0) == max(highest, 0)


def test_leader_hints_update_newer_epochs_only() -> None:
    metadata = make()
    id = uuid.uuid4()
    update(metadata, topic("t", 3, epoch=5, id=id), topic("u"))
    new = Node(9, "10.0.0.9", 9092)
    changed = metadata.update_partition_leadership(
        {
            T0: LeaderIdAndEpoch(9, 6),
            TopicPartition("t", 1): LeaderIdAndEpoch(1, 5),  # not newer
            TopicPartition("t", 2): LeaderIdAndEpoch(77, 6),  # an unknown node
            TopicPartition("u", 0): LeaderIdAndEpoch(None, 6),
            TopicPartition("unknown", 0): LeaderIdAndEpoch(1, 6),
        },
        [new],
    )
    assert changed == {T0}
    cluster = metadata.fetch()
    assert metadata.current_leader(T0) == LeaderAndEpoch(new, 6)
    assert cluster.leader_for(TopicPartition("t", 1)) == NODES[0]
    assert set(cluster.nodes) == {*NODES, new}
    assert cluster.controller == NODES[1]
    assert metadata.topic_ids == {"t": id}
    assert cluster.topics == {"t", "u"}
    assert metadata.update_partition_leadership({T0: LeaderIdAndEpoch(9, 6)}, [new]) == set()


# --- topics ----------------------------------------------------------------------------------------------------------


class Retaining(Metadata):
    wanted: frozenset[str] = frozenset()

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        return topic in self.wanted


def test_only_wanted_topics_are_kept() -> None:
    metadata = Retaining(BACKOFF_MS, BACKOFF_MS, EXPIRE_MS, LogContext())
    metadata.wanted = frozenset("ab")
    update(metadata, topic("a"), topic("b", internal=True), topic("x"), topic("y", error=InvalidTopicError.code))
    assert metadata.fetch().topics == {"a", "b"}
    assert metadata.fetch().internal_topics == {"b"}
    assert metadata.last_seen_leader_epoch(TopicPartition("x", 0)) is None
    metadata.maybe_throw_any_exception()
    metadata.wanted = frozenset("bc")
    update(metadata, topic("c"), partial=True)
    assert metadata.fetch().topics == {"b", "c"}
    assert metadata.last_seen_leader_epoch(TopicPartition("a", 0)) is None
    assert metadata.fetch().internal_topics == {"b"}


def test_partial_update_replaces_only_its_topics() -> None:
    metadata = make()
    id = uuid.uuid4()
    update(metadata, topic("a", 3, id=id), topic("b"))
    update(metadata, topic("a", error=errors.LeaderNotAvailableError.code), partial=True)
    assert metadata.fetch().topics == {"b"}
    assert metadata.topic_ids == {}
    assert metadata.update_requested


def test_topic_errors_are_raised_for_their_topic() -> None:
    metadata = make()
    update(
        metadata,
        topic("bad name", error=InvalidTopicError.code),
        topic("secret", error=TopicAuthorizationError.code),
        topic("fine"),
    )
    metadata.maybe_throw_exception_for_topic("fine")
    metadata.maybe_throw_any_exception()  # cleared by the line before
    update(metadata, topic("bad name", error=InvalidTopicError.code))
    with pytest.raises(InvalidTopicError, match="bad name"):
        metadata.maybe_throw_exception_for_topic("bad name")
    update(metadata, topic("secret", error=TopicAuthorizationError.code))
    with pytest.raises(TopicAuthorizationError, match="secret"):
        metadata.maybe_throw_any_exception()
    metadata.maybe_throw_any_exception()


def test_error_that_arrives_before_errors_are_forgotten_is_raised() -> None:
    metadata = make()
    update(metadata, topic("bad name", error=InvalidTopicError.code))
    lock = metadata._lock

    class AfterAnotherThread:
        """The lock, for which the caller waits until another thread has processed a response."""

        def __enter__(self) -> None:
            metadata._lock = lock
            update(metadata, topic("secret", error=TopicAuthorizationError.code))
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    metadata._lock = AfterAnotherThread()  # type: ignore[assignment]
    with pytest.raises(TopicAuthorizationError, match="secret"):
        metadata.maybe_throw_any_exception()


def test_fatal_errors_are_raised_by_each_call() -> None:
    metadata = make()
    for raise_it in (
        metadata.maybe_throw_fatal_exception,
        metadata.maybe_throw_any_exception,
        lambda: metadata.maybe_throw_exception_for_topic("t"),
    ):
        metadata.fatal_error(AuthenticationError("no"))
        with pytest.raises(AuthenticationError):
            raise_it()
        raise_it()


@pytest.mark.parametrize(
    ("code", "asks_again"),
    [
        (errors.LeaderNotAvailableError.code, True),
        (errors.UnknownTopicOrPartitionError.code, True),
        (InvalidTopicError.code, False),
        (32_000, False),
    ],
)
def test_retriable_topic_errors_request_update(code: int, asks_again: bool) -> None:
    metadata = make()
    update(metadata, topic("t", error=code))
    assert metadata.update_requested == asks_again
    other = make()
    other.update_with_current_request_version(
        response(Topic(name="t", partitions=[partition(0, error=code)])), False, 0
    )
    assert other.update_requested == asks_again


def test_unknown_topic_id_adds_no_topic() -> None:
    metadata = make()
    update(metadata, Topic(name=None, topic_id=uuid.uuid4(), error_code=errors.UnknownTopicIdError.code))
    assert metadata.fetch().topics == set()
    assert metadata.update_requested


def test_partition_has_no_leader_if_broker_is_unknown() -> None:
    metadata = make()
    metadata.update_with_current_request_version(response(topic("t"), nodes=NODES[1:]), False, 0)
    assert metadata.fetch().leader_for(T0) is None
    assert metadata.fetch().available_partitions_for_topic("t") == ()
    assert metadata.fetch().partitions_for_topic("t")[0].replicas[0].host == ""


def test_listeners_are_told_cluster_id() -> None:
    heard: list[ClusterResource] = []

    class Listener:
        def on_update(self, resource: ClusterResource) -> None:
            heard.append(resource)

    metadata = make(cluster_resource_listeners=ClusterResourceListeners([Listener(), object()]))
    update(metadata)
    assert heard == [ClusterResource("c")]


def test_failing_listener_is_logged_once_and_others_run(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ClusterResource] = []

    class Failing:
        def on_update(self, _resource: ClusterResource) -> None:
            raise ValueError("listener")

    class Listener:
        def on_update(self, resource: ClusterResource) -> None:
            heard.append(resource)

    metadata = make(cluster_resource_listeners=ClusterResourceListeners([Failing(), Listener(), Failing()]))
    update(metadata)
    update(metadata)
    assert heard == [ClusterResource("c")] * 2
    assert [record.levelname for record in caplog.records if "on_update" in record.message] == ["ERROR"] * 2


# --- requests --------------------------------------------------------------------------------------------------------


def test_inexpressible_metadata_requests_are_refused() -> None:
    by_id = MetadataRequestBuilder.for_topic_ids([uuid.uuid4()])
    assert isinstance(by_id.build(12), MetadataRequest)
    for builder, version in (
        (by_id, 11),
        (MetadataRequestBuilder.for_topic_names(["a"], False), 3),
        (MetadataRequestBuilder.all_topics(), 0),
    ):
        with pytest.raises(errors.UnsupportedVersionError):
            builder.build(version)
    assert MetadataRequestBuilder.for_topic_names(["a"], True).topics == ["a"]
