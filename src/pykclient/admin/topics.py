"""Topics and their partitions: the steps of their methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pykclient import errors
from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, ask, run
from pykclient.admin.api import (
    AdminApiHandler,
    Answers,
    ErrorTypes,
    VersionedBuilder,
    item_error,
    to_any_broker,
    to_controller,
)
from pykclient.admin.descriptions import ConfigEntry, CreatedTopic, PartitionDescription, TopicDescription
from pykclient.admin.values import ConfigSourceType, NewPartitions, NewTopic, Results, authorized_operations
from pykclient.errors import IllegalArgumentError, KafkaError, RemoteProtocolError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.network.metadata import MetadataRequestBuilder
from pykclient.protocol.message import ZERO_UUID
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.protocol.message import Request

_Topic = CreateTopicsRequest.CreatableTopic
_State = DeleteTopicsRequest.DeleteTopicState
_Asked = MetadataRequest.MetadataRequestTopic
_Grown = CreatePartitionsRequest.CreatePartitionsTopic
_Assignment = CreatePartitionsRequest.CreatePartitionsAssignment
_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
#: From this version on, brokers have defaults for partitions and replicas (KIP-464).
_DEFAULTS_FROM = 4
#: From this version on, topics are deleted by name or id (KIP-516).
_IDS_FROM = 6
#: A broker that has lost its connection to the controller needs at least this long to connect again, and to repeat a
#: request: its reconnect.backoff.ms.
_REPEATED_FROM_MS = 50


# --- creating --------------------------------------------------------------------------------------------------------


def _maybe_ours(error: KafkaError, latency_ms: int, outcome: str) -> KafkaError:
    """Return an error that a broker's own repetition of the request can cause, with a text that says so.

    Brokers forward requests to the controller, and repeat them if they lose that connection. They do not tell.
    """
    if latency_ms < _REPEATED_FROM_MS:
        return error
    told = str(error).rstrip(".")
    return type(error)(
        f"{told}. The broker took {latency_ms} ms to answer. If it lost its connection to the controller meanwhile, it "
        f"has repeated the request, and {outcome}"
    )


class _CreateTopicsHandler(AdminApiHandler[str, _Created]):
    """Explains that a topic that exists may be the one that this call has created."""

    def _about(self, key: str, error: KafkaError) -> KafkaError:
        error = super()._about(key, error)
        if not isinstance(error, errors.TopicExistsError):
            return error
        return _maybe_ours(error, self.latency_ms, "the topic may be the one that this call has created")


def create_topics(topics: Mapping[str, _Topic], validate_only: bool) -> Steps[Results[str, _Created]]:
    """Create topics.

    If the connection is lost before the response, the request is sent again, and may then find the topic that it has
    created itself. Such a topic counts as created if it is as it was asked for.
    """
    found: dict[str, KafkaError] = {}  # topics that exist, perhaps from an attempt whose response was lost

    def request(keys: Sequence[str], timeout_ms: int) -> RequestBuilder:
        wanted = [topics[name] for name in keys]
        message = CreateTopicsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

        def of_version(version: int) -> CreateTopicsRequest:
            if version < _DEFAULTS_FROM and any(
                not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor) for topic in wanted
            ):
                raise UnsupportedVersionError(
                    "brokers before Kafka 2.4 have no defaults for num_partitions and replication_factor: give both"
                )
            return message

        return VersionedBuilder(message, of_version)

    def answers(_keys: Sequence[str], response: CreateTopicsResponse) -> Answers[str]:
        for topic in response.topics:
            error = item_error(topic)
            if isinstance(error, errors.TopicExistsError) and topic.name in handler.uncertain:
                found[topic.name] = error
            yield topic.name, error, topic

    handler = _CreateTopicsHandler("create_topics", to_controller(), request, answers)
    results = yield from run(handler, topics)
    described = yield from run(_await_topics(), list(found))
    for name in found:
        if name in described.succeeded and (own := _as_created(topics[name], described.succeeded[name])):
            results.failed.pop(name, None)
            results.succeeded[name] = own
    return results


def _as_created(wanted: CreateTopicsRequest.CreatableTopic, found: MetadataTopic) -> _Created | None:
    """Return the response that created ``found``, or None if it is not the topic that was wanted."""
    partitions = {partition.partition_index: partition.replica_nodes for partition in found.partitions}
    assigned = {assignment.partition_index: assignment.broker_ids for assignment in wanted.assignments}
    copies = len(found.partitions[0].replica_nodes) if found.partitions else 0
    if assigned:
        if {index: list(replicas) for index, replicas in partitions.items()} != assigned:
            return None
    elif wanted.num_partitions not in (-1, len(partitions)) or wanted.replication_factor not in (-1, copies):
        return None
    return _Created(
        name=wanted.name, topic_id=found.topic_id, num_partitions=len(partitions), replication_factor=copies, configs=[]
    )


def creatable_topics(new_topics: object) -> dict[str, CreateTopicsRequest.CreatableTopic]:
    """Return the topics to create by name, from names, a dict of options by name, or NewTopic objects.

    Raises:
        IllegalArgumentError: an argument is wrong, a topic is given twice, or there is none.
    """
    if isinstance(new_topics, Mapping):
        given = [_creatable(name, options) for name, options in new_topics.items()]
    else:
        given = [
            _creatable(topic.name, _options_of(topic)) if isinstance(topic, NewTopic) else _creatable(topic, {})
            for topic in expect.items(new_topics, "new_topics", "names or NewTopic")
        ]
    if not given:
        raise IllegalArgumentError("new_topics is empty; name at least one topic")
    topics = {topic.name: topic for topic in given}
    if len(topics) < len(given):
        raise IllegalArgumentError("new_topics names a topic twice")
    return topics


_OPTIONS = {"num_partitions", "replication_factor", "assignments", "configs"}


def _options_of(topic: NewTopic) -> dict[str, object]:
    return {
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "assignments": topic.replica_assignments,
        "configs": topic.topic_configs,
    }


def _creatable(topic: object, options: object) -> CreateTopicsRequest.CreatableTopic:
    name = expect.text(topic, "the name of a topic")
    given = expect.mapping(options, f"the options of topic {name!r}", "options")
    if unknown := set(given) - _OPTIONS:
        raise IllegalArgumentError(f"topic {name!r} has unknown options: {sorted(map(str, unknown))}")
    about = f"of topic {name!r}"
    replicas = expect.optional_mapping(given.get("assignments"), f"assignments {about}", "broker ids by partition")
    values = expect.optional_mapping(given.get("configs"), f"configs {about}", "values by key")
    return _Topic(
        name=name,
        num_partitions=expect.number(given.get("num_partitions", -1), f"num_partitions {about}", -1),
        replication_factor=expect.number(
            given.get("replication_factor", -1), f"replication_factor {about}", -1, expect.INT16
        ),
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=expect.number(index, f"a partition {about}"),
                broker_ids=expect.replicas(brokers, f"the replicas {about}"),
            )
            for index, brokers in replicas.items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(
                name=expect.text(key, f"a config {about}"), value=config_value(value, f"config {key!r} {about}")
            )
            for key, value in values.items()
        ],
    )


def config_value(value: object, what: str) -> str | None:
    """Return a configuration value as the protocol's string; converts numbers and bools.

    Raises:
        IllegalArgumentError: it is of another type.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, int):
        return repr(expect.number(value, what, -expect.INT64 - 1, expect.INT64))
    return expect.optional_text(value, what)


# --- deleting --------------------------------------------------------------------------------------------------------

TopicKey = str | UUID


def _asked(kind: Any, key: TopicKey) -> Any:
    """Return a topic of a request: with its id, or with its name."""
    return kind(topic_id=key, name=None) if isinstance(key, UUID) else kind(name=key)


class DeleteTopicsHandler(AdminApiHandler[TopicKey, _Deleted]):
    """Deletes topics by name or id.

    One that an earlier attempt may have deleted, and that is gone, counts as deleted.
    """

    def __init__(self) -> None:
        super().__init__("delete_topics", to_controller(), _delete_request, self._deleted)

    def _deleted(self, keys: Sequence[TopicKey], response: DeleteTopicsResponse) -> Answers[TopicKey]:
        for key, topic in _told(keys, response.responses):
            error = item_error(topic)
            if isinstance(error, _GONE) and key in self.uncertain:
                yield key, None, _Deleted(name=topic.name, topic_id=topic.topic_id, error_message=None)
            else:
                yield key, error, topic

    def _about(self, key: TopicKey, error: KafkaError) -> KafkaError:
        error = super()._about(key, error)
        if not isinstance(error, _GONE):
            return error
        return _maybe_ours(error, self.latency_ms, "this call may have deleted the topic")


_GONE = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)


def _delete_request(keys: Sequence[TopicKey], timeout_ms: int) -> RequestBuilder:
    def of_version(version: int) -> DeleteTopicsRequest:
        if version >= _IDS_FROM:
            states = [_asked(_State, key) for key in keys]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        names = [key for key in keys if isinstance(key, str)]
        if len(names) < len(keys):
            raise UnsupportedVersionError("brokers before Kafka 2.8 cannot delete topics by id")
        return DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)

    return VersionedBuilder(DeleteTopicsRequest(), of_version)


def _told(keys: Sequence[TopicKey], topics: Iterable[Any]) -> Iterator[tuple[TopicKey, Any]]:
    """Yield the topics of a response with the names or ids that they were asked for by."""
    asked = set(keys)
    for topic in topics:
        yield topic.name if topic.name is not None and topic.name in asked else topic.topic_id, topic


def delete_topics(topics: Sequence[TopicKey]) -> Steps[Results[TopicKey, _Deleted]]:
    """Delete topics, by name or by id."""
    return run(DeleteTopicsHandler(), topics)


def topic_keys(topics: object, what: str = "topics") -> list[TopicKey]:
    """Return a list of names and ids, each once, in order.

    Raises:
        IllegalArgumentError: one of them is neither.
    """
    given = expect.items(topics, what, "names or ids of topics")
    return list(
        dict.fromkeys(
            topic if isinstance(topic, UUID) else expect.text(topic, f"{what}[{index}]")
            for index, topic in enumerate(given)
        )
    )


# --- describing ------------------------------------------------------------------------------------------------------

MetadataTopic = MetadataResponse.MetadataResponseTopic


class _DescribeTopicsBuilder(MetadataRequestBuilder):
    """Asks for authorized operations if the broker supports it (KIP-430), which versions from 8 on do."""

    def build(self, version: int) -> Request:
        super().build(version)
        request = self.request
        return MetadataRequest(
            topics=request.topics,
            allow_auto_topic_creation=request.allow_auto_topic_creation,
            include_topic_authorized_operations=version >= 8,
            include_cluster_authorized_operations=8 <= version <= 10,
        )


def _metadata_request(topics: Sequence[TopicKey] | None) -> RequestBuilder:
    """Return the request for the metadata of all topics (None), or of topics by name or id."""
    if topics is None:
        return _DescribeTopicsBuilder(MetadataRequest(topics=None, allow_auto_topic_creation=True))
    asked = [_asked(_Asked, key) for key in topics]
    return _DescribeTopicsBuilder(MetadataRequest(topics=asked, allow_auto_topic_creation=False))


def _described(keys: Sequence[TopicKey], response: MetadataResponse) -> Answers[TopicKey]:
    for key, topic in _told(keys, response.topics):
        yield key, topic_error(topic, key), topic


def _describe_handler(retried: ErrorTypes = ()) -> AdminApiHandler[Any, MetadataTopic]:
    return AdminApiHandler(
        "describe_topics", to_any_broker(), lambda keys, _timeout_ms: _metadata_request(keys), _described, retried
    )


def _await_topics() -> AdminApiHandler[Any, MetadataTopic]:
    """Return the call that describes topics which exist, according to the controller.

    A broker that does not know one is behind.
    """
    handler = _describe_handler(retried=(errors.UnknownTopicOrPartitionError,))
    handler.max_unknown_topic_attempts = 1 << 30
    return handler


def topic_error(topic: Any, key: TopicKey) -> KafkaError | None:
    """Return the error of a topic in a response, or None. Its text names the topic."""
    error = item_error(topic)
    if error is None or isinstance(error, errors.LeaderNotAvailableError):
        return None  # of some of its partitions
    messages: dict[type[KafkaError], str] = {
        errors.UnknownTopicOrPartitionError: f"topic {key!r} does not exist; create it, or check its name",
        errors.UnknownTopicIdError: f"no topic has the id {key}",
        errors.TopicAuthorizationError: f"not authorized to describe topic {key!r}",
        errors.InvalidTopicError: f"no topic can have the name {key!r}",
    }
    message = messages.get(type(error))
    return error if message is None else type(error)(message)


def describe_topics(topics: Sequence[TopicKey]) -> Steps[Results[TopicKey, MetadataTopic]]:
    """Describe topics as any broker knows them."""
    return run(_describe_handler(), topics)


def all_metadata(name: str, topics: Sequence[TopicKey] | None = None) -> Steps[MetadataResponse]:
    """Return the metadata of the cluster with all topics (None) or some of them, and topics' errors."""
    return ask(name, to_any_broker(), _metadata_request(topics))


# --- partitions ------------------------------------------------------------------------------------------------------


class NewPartitionsOf(NamedTuple):
    """The new partition count of a topic, and the replicas of the added partitions."""

    total: int
    assignments: list[list[int]] | None = None


def create_partitions(topics: Mapping[str, NewPartitionsOf], validate_only: bool) -> Steps[Results[str, Any]]:
    """Add partitions to topics.

    After a lost response, a topic with the wanted number of partitions is a success.
    """

    def request(keys: Sequence[str], timeout_ms: int) -> CreatePartitionsRequest:
        wanted = [
            _Grown(
                name=name,
                count=topics[name].total,
                assignments=None
                if (assignments := topics[name].assignments) is None
                else [_Assignment(broker_ids=brokers) for brokers in assignments],
            )
            for name in keys
        ]
        return CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

    def answers(_keys: Sequence[str], response: CreatePartitionsResponse) -> Answers[str]:
        for result in response.results:
            yield result.name, item_error(result), result

    handler: AdminApiHandler[str, Any] = AdminApiHandler("create_partitions", to_controller(), request, answers)
    results = yield from run(handler, topics)
    doubtful = [
        name
        for name, error in results.failed.items()
        if isinstance(error, errors.InvalidPartitionsError) and name in handler.uncertain
    ]
    described = yield from run(_await_topics(), doubtful)
    for name, topic in described.succeeded.items():
        if len(topic.partitions) == topics[name].total:
            del results.failed[name]
            results.succeeded[name] = CreatePartitionsResponse.CreatePartitionsTopicResult(name=name)
    return results


def new_partitions(topic_partitions: object) -> dict[str, NewPartitionsOf]:
    """Return the wanted partitions by topic, from counts, NewPartitions, or dicts with ``count`` and ``assignments``.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    found = {}
    for name, wanted in expect.mapping(topic_partitions, "topic_partitions", "partition counts by topic").items():
        topic = expect.text(name, "the name of a topic")
        assignments: object = None
        count: object = wanted
        if isinstance(wanted, NewPartitions):
            count, assignments = wanted.total_count, wanted.new_assignments
        elif isinstance(wanted, Mapping):
            count, assignments = wanted.get("count"), wanted.get("assignments")
        about = f"of topic {topic!r}"
        found[topic] = NewPartitionsOf(
            expect.number(count, f"the partition count {about}", 1),
            None
            if assignments is None
            else [
                expect.replicas(brokers, f"the replicas {about}")
                for brokers in expect.items(assignments, f"assignments {about}", "lists of broker ids")
            ],
        )
    return found


def topic_id_or_none(topic_id: UUID) -> UUID | None:
    """Return a topic's id, or None if the broker has none."""
    return None if topic_id == ZERO_UUID else topic_id


# --- typed results ---------------------------------------------------------------------------------------------------


def created_topic(topic: _Created) -> CreatedTopic:
    """Return a topic of a response as the typed result."""
    configs = {
        config.name: ConfigEntry(
            config.name,
            config.value,
            ConfigSourceType.build_from(config.config_source),
            config.read_only,
            config.is_sensitive,
        )
        for config in topic.configs or ()
    }
    topic_id = topic_id_or_none(topic.topic_id)
    return CreatedTopic(topic.name, topic_id, topic.num_partitions, topic.replication_factor, configs)


def topic_description(topic: Any, node_by_id: Callable[[int], Node | None]) -> TopicDescription:
    """Return a topic of a response as the typed result."""

    def nodes(ids: Iterable[int]) -> tuple[Node, ...]:
        return tuple(node_by_id(id) or Node(id, "", -1) for id in ids)

    return TopicDescription(
        topic.name or "",
        topic_id_or_none(topic.topic_id),
        topic.is_internal,
        [
            PartitionDescription(
                partition.partition_index,
                nodes([partition.leader_id])[0] if partition.leader_id >= 0 else None,
                partition.leader_epoch,
                nodes(partition.replica_nodes),
                nodes(partition.isr_nodes),
                nodes(partition.offline_replicas),
                *_eligible(partition, nodes),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ],
        authorized_operations(topic.topic_authorized_operations),
    )


def _eligible(partition: Any, nodes: Callable[[Iterable[int]], tuple[Node, ...]]) -> tuple[tuple[Node, ...], ...]:
    """Return the eligible leader replicas, now and last known; nothing if the response has no such fields."""
    if not hasattr(partition, "eligible_leader_replicas"):
        return ()
    return nodes(partition.eligible_leader_replicas or ()), nodes(partition.last_known_elr or ())


#: The number of partitions in a response, as in Java; brokers have a limit of their own.
_PAGE_SIZE: Final = 2000


class Cursor(NamedTuple):
    """The first partition of a page."""

    topic: str
    partition: int


def _page_request(topics: Sequence[str], limit: int, cursor: Cursor | None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in sorted(topics)],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor.topic, partition_index=cursor.partition),
    )


def describe_topic_partitions(
    topics: Sequence[str], limit: int, cursor: Cursor | None
) -> Steps[DescribeTopicPartitionsResponse]:
    """Return one page of the partitions of topics."""
    return ask("describe_topic_partitions", to_any_broker(), _page_request(topics, limit, cursor))


def describe_topics_in_pages(topics: Sequence[TopicKey]) -> Steps[Results[TopicKey, Any]]:
    """Describe topics as any broker knows them.

    Topics given by name are described in pages and, as in Java, only they have eligible leader replicas. Topics given
    by id, and all topics where the brokers are older than Kafka 3.8, are described by one response with metadata.
    """
    results: Results[TopicKey, Any] = Results()
    remaining = [topic for topic in topics if isinstance(topic, str)]
    others: Sequence[TopicKey] = [topic for topic in topics if isinstance(topic, UUID)]
    cursor: Cursor | None = None
    next_cursor: Cursor | None = None

    def request(keys: Sequence[str], _timeout_ms: int) -> DescribeTopicPartitionsRequest:
        return _page_request(keys, _PAGE_SIZE, cursor)

    def answers(keys: Sequence[str], response: DescribeTopicPartitionsResponse) -> Answers[str]:
        nonlocal next_cursor
        place = response.next_cursor
        next_cursor = None if place is None else Cursor(place.topic_name, place.partition_index)
        told = set()
        for topic in response.topics:
            if topic.name is not None:
                told.add(topic.name)
                yield topic.name, topic_error(topic, topic.name), topic
        if place is not None:
            for key in keys:
                if key not in told:
                    yield key, None, None  # the topic comes after the page

    while remaining:
        next_cursor = None
        handler: AdminApiHandler[str, Any] = AdminApiHandler("describe_topics", to_any_broker(), request, answers)
        page = yield from run(handler, remaining)
        if isinstance(page.error_of_all, UnsupportedVersionError):
            others = topics
            break
        _add(results, page)
        if next_cursor is None:
            break
        if next_cursor == cursor:
            raise RemoteProtocolError(f"describe_topics: the broker's response ends where it began, at {cursor}")
        cursor = next_cursor
        remaining = [name for name in remaining if name >= cursor.topic]
    described = yield from describe_topics(others)
    _add(results, described)
    return results


def _add(results: Results[TopicKey, Any], page: Results[Any, Any]) -> None:
    """Add a page to the results. A topic may begin on one page and end on another."""
    for name, topic in page.succeeded.items():
        if name in results.succeeded and topic is not None:
            results.succeeded[name].partitions.extend(topic.partitions)
        elif topic is not None:
            results.succeeded[name] = topic
    for name, error in page.failed.items():
        results.succeeded.pop(name, None)
        results.failed[name] = error
    results.error_of_all = results.error_of_all or page.error_of_all
