"""Records, offsets, leaders and replicas of partitions: the steps of their methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pykclient import errors, topic_names
from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, ask, run
from pykclient.admin.api import (
    AdminApiHandler,
    Answers,
    LookupStrategy,
    PartitionLeaderStrategy,
    VersionedBuilder,
    checked,
    item_error,
    nothing,
    to_controller,
    whole,
)
from pykclient.admin.descriptions import PartitionReassignment
from pykclient.admin.topics import all_metadata
from pykclient.admin.values import ElectionType, IsolationLevel, OffsetSpec, Results
from pykclient.errors import IllegalArgumentError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pykclient.protocol.messages.delete_records import DeleteRecordsRequest
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pykclient.types import TopicPartition

T = TypeVar("T")

#: The offset that stands for the high watermark in ``delete_records``.
HIGH_WATERMARK = -1


def by_topic(partitions: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return partitions by topic: their numbers, or what a request has for each."""
    found: dict[str, list[T]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def topics_of(
    partitions: Mapping[str, Sequence[Any]],
    kind: Callable[..., T],
    name: str = "name",
    numbers: str = "partition_indexes",
) -> list[T]:
    """Return the topics of a request, of a class with fields of these names."""
    return [kind(**{name: topic, numbers: of_topic}) for topic, of_topic in partitions.items()]


# --- records ---


def delete_records(
    offsets: Mapping[TopicPartition, int], leader_id: int | None = None
) -> Steps[Results[TopicPartition, Any]]:
    """Delete the records before an offset in each partition, at ``leader_id`` or at the leaders."""

    def request(keys: Sequence[TopicPartition], timeout_ms: int) -> DeleteRecordsRequest:
        kind = DeleteRecordsRequest.DeleteRecordsPartition
        partitions = by_topic((tp.topic, kind(partition_index=tp.partition, offset=offsets[tp])) for tp in keys)
        topics = topics_of(partitions, DeleteRecordsRequest.DeleteRecordsTopic, numbers="partitions")
        return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    return run(
        AdminApiHandler("delete_records", leaders(leader_id), request, by_partition("topics", whole)), list(offsets)
    )


def by_partition(
    field: str, read: Callable[[Any], Any] = nothing
) -> Callable[[Sequence[TopicPartition], Any], Answers[TopicPartition]]:
    """Return the answers in the topics of a response, which are in ``field``: what ``read`` makes of a partition."""

    def answers(_keys: Sequence[TopicPartition], response: Any) -> Answers[TopicPartition]:
        for topic in getattr(response, field):
            name = topic.name if hasattr(topic, "name") else topic.topic_name
            for partition in topic.partitions:
                yield TopicPartition(name, partition.partition_index), item_error(partition), read(partition)

    return answers


def leaders(leader_id: int | None) -> LookupStrategy[TopicPartition]:
    """Return the strategy that finds the leaders of partitions, or uses the one that the application names."""
    return PartitionLeaderStrategy() if leader_id is None else LookupStrategy(lambda _: leader_id)


def offsets_to_delete_before(values: object) -> dict[TopicPartition, int]:
    """Return offsets by partition.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    given = expect.mapping(values, "records_to_delete", "offsets by TopicPartition")
    return {
        topic_names.partition(tp, "a key of records_to_delete"): expect.number(
            offset, f"the offset of {tp}", HIGH_WATERMARK, expect.INT64
        )
        for tp, offset in given.items()
    }


# --- offsets ---


#: The first version of a ListOffsets request for each special place.
_FIRST_VERSIONS = {
    OffsetSpec.MAX_TIMESTAMP.value: 7,
    OffsetSpec.EARLIEST_LOCAL.value: 8,
    OffsetSpec.LATEST_TIERED.value: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD.value: 11,
}
_FIRST_VERSION_WITH_ISOLATION = 2

#: The sender is a client. Replicas are not told the high watermark or the last stable offset, but the end of the log.
_NO_REPLICA = -1


def _list_offsets_builder(message: ListOffsetsRequest, specs: Iterable[int]) -> RequestBuilder:
    needed = max(_FIRST_VERSIONS.get(spec, 1) for spec in specs)
    if message.isolation_level:
        needed = max(needed, _FIRST_VERSION_WITH_ISOLATION)

    def of_version(version: int) -> ListOffsetsRequest:
        if version < needed:
            raise UnsupportedVersionError(
                f"the wanted offsets need version {needed} of ListOffsets; the broker has version {version}"
            )
        return message

    return VersionedBuilder(message, of_version)


def list_offsets(
    specs: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> Steps[Results[TopicPartition, ListOffsetsResponse.ListOffsetsPartitionResponse]]:
    """Look up an offset in each partition by a time in milliseconds, or by an OffsetSpec."""

    def request(keys: Sequence[TopicPartition], timeout_ms: int) -> RequestBuilder:
        kind = ListOffsetsRequest.ListOffsetsPartition
        partitions = by_topic((tp.topic, kind(partition_index=tp.partition, timestamp=specs[tp])) for tp in keys)
        message = ListOffsetsRequest(
            replica_id=_NO_REPLICA,
            isolation_level=isolation_level.value,
            topics=topics_of(partitions, ListOffsetsRequest.ListOffsetsTopic, numbers="partitions"),
            timeout_ms=timeout_ms,
        )
        return _list_offsets_builder(message, [specs[key] for key in keys])

    return run(
        AdminApiHandler("list_partition_offsets", PartitionLeaderStrategy(), request, by_partition("topics", whole)),
        list(specs),
    )


def offset_specs(values: object) -> dict[TopicPartition, int]:
    """Return the timestamps of the ListOffsets request by partition; special values stand for OffsetSpecs.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    least = min(OffsetSpec)
    return {
        topic_names.partition(tp, "a key of topic_partition_specs"): expect.number(
            spec, f"the place in {tp}", least, expect.INT64
        )
        for tp, spec in expect.mapping(values, "topic_partition_specs", "OffsetSpec by TopicPartition").items()
    }


# --- leaders ---


def elect_leaders(
    election_type: ElectionType, partitions: Mapping[str, Sequence[int]] | None
) -> Steps[ElectLeadersResponse]:
    """Elect leaders for the given partitions, or for all (None). The response has an error per partition."""

    def request(_keys: Sequence[None], timeout_ms: int) -> RequestBuilder:
        kind = ElectLeadersRequest.TopicPartitions
        message = ElectLeadersRequest(
            election_type=election_type.value,
            topic_partitions=None if partitions is None else topics_of(partitions, kind, "topic", "partitions"),
            timeout_ms=timeout_ms,
        )
        return RequestBuilder(message, min_version=0 if election_type is ElectionType.PREFERRED else 1)

    def read(response: ElectLeadersResponse) -> ElectLeadersResponse:
        for topic in response.replica_election_results:
            for partition in topic.partition_result:
                if partition.error_code == errors.NotControllerError.code:  # how the first version says it
                    checked(partition)
        return response

    return ask("elect_leaders", to_controller(), request, read)


def partitions_by_topic(values: object) -> Steps[dict[str, list[int]] | None]:
    """Return partitions by topic: as given, or all of the named topics. None is for all topics.

    Raises:
        IllegalArgumentError: an argument is wrong.
        UnknownTopicOrPartitionError: a topic does not exist.
    """
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {
            expect.text(topic, "the name of a topic"): [
                expect.number(partition, f"a partition of {topic!r}")
                for partition in expect.items(partitions, f"the partitions of {topic!r}", "numbers")
            ]
            for topic, partitions in values.items()
        }
    names = expect.texts(values, "topic_partitions")
    metadata = yield from all_metadata("describe_topics", names)
    found = {}
    for topic in metadata.topics:
        error = item_error(topic)
        if error is not None:
            raise type(error)(f"topic {topic.name!r}: {error}")
        found[topic.name or ""] = sorted(partition.partition_index for partition in topic.partitions)
    return found


# --- reassignments ---


def alter_reassignments(
    replicas: Mapping[TopicPartition, list[int] | None], may_change_count: bool = True
) -> Steps[Results[TopicPartition, None]]:
    """Start to move partitions to other brokers; None cancels a move in progress.

    Without ``may_change_count``, a move to more or fewer brokers is refused (KIP-860).
    """

    def request(keys: Sequence[TopicPartition], timeout_ms: int) -> AlterPartitionReassignmentsRequest:
        kind = AlterPartitionReassignmentsRequest.ReassignablePartition
        partitions = by_topic((tp.topic, kind(partition_index=tp.partition, replicas=replicas[tp])) for tp in keys)
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            allow_replication_factor_change=may_change_count,
            topics=topics_of(partitions, AlterPartitionReassignmentsRequest.ReassignableTopic, numbers="partitions"),
        )

    return run(
        AdminApiHandler(
            "alter_partition_reassignments", to_controller(or_quorum=True), request, by_partition("responses")
        ),
        list(replicas),
    )


def new_replicas(values: object) -> dict[TopicPartition, list[int] | None]:
    """Return the wanted replicas by partition.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    found: dict[TopicPartition, list[int] | None] = {}
    for key, replicas in expect.mapping(values, "reassignments", "broker ids by TopicPartition").items():
        tp = topic_names.partition(key, "a key of reassignments")
        found[tp] = None if replicas is None else expect.replicas(replicas, f"the replicas of {tp}")
        if found[tp] == []:
            raise IllegalArgumentError(f"the replicas of {tp} are empty; None cancels a reassignment")
    return found


def list_reassignments(partitions: Mapping[str, Sequence[int]] | None) -> Steps[ListPartitionReassignmentsResponse]:
    """Return the moves in progress, for some partitions or for all."""

    def request(_keys: Sequence[None], timeout_ms: int) -> ListPartitionReassignmentsRequest:
        kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        topics = None if partitions is None else topics_of(partitions, kind)
        return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)

    return ask("list_partition_reassignments", to_controller(or_quorum=True), request)


# --- typed results ---


def elected(response: ElectLeadersResponse, *, leave_out_unneeded: bool) -> Results[TopicPartition, None]:
    """Return the outcome of each partition's election."""
    results: Results[TopicPartition, None] = Results()
    for topic in response.replica_election_results:
        for partition in topic.partition_result:
            tp = TopicPartition(topic.topic, partition.partition_id)
            error = item_error(partition)
            if error is None:
                results.succeeded[tp] = None
            elif not (leave_out_unneeded and isinstance(error, errors.ElectionNotNeededError)):
                results.failed[tp] = error
    return results


def reassignments(response: ListPartitionReassignmentsResponse) -> dict[TopicPartition, PartitionReassignment]:
    """Return the moves in a response by partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): PartitionReassignment(
            tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
        )
        for topic in response.topics
        for partition in topic.partitions
    }
