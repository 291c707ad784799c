"""The methods of KafkaAdminClient for records, offsets, leaders and replicas, as kafka-python has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykclient import errors
from pykclient.admin import expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.api import error_of
from pykclient.admin.kafka_cluster import error_classes
from pykclient.admin.operation import CallContext, Operation
from pykclient.admin.partitions import (
    alter_reassignments,
    by_topic,
    delete_records,
    elect_leaders,
    list_offsets,
    list_reassignments,
    new_replicas,
    offset_specs,
    offsets_to_delete_before,
    partitions_by_topic,
)
from pykclient.admin.plain import plain
from pykclient.admin.topic_pages import Cursor, describe_topic_partitions
from pykclient.admin.values import ElectionType, IsolationLevel, OffsetSpec
from pykclient.errors import BrokerError, KafkaError
from pykclient.protocol.messages.elect_leaders import ElectLeadersResponse
from pykclient.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from pykclient.types import OffsetAndTimestamp, TopicPartition


class PartitionCalls(AdminBase):
    """Records, offsets, leaders and replicas of partitions."""

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete the records before an offset in each partition; -1 is for all that are replicated.

        Return a dict with ``low_watermark``, the first offset that is left, for each partition. The leaders are looked
        up, unless ``partition_leader_id`` names the one of all partitions.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the end of a partition.
            PolicyViolationError: a topic is compacted, so its records cannot be deleted.
            TopicAuthorizationError: not authorized to delete records of a topic.
            UnknownTopicOrPartitionError: a partition does not exist.
            BrokerError: several partitions have errors; the text names them.
        """
        offsets = offsets_to_delete_before(records_to_delete)
        leader = None if partition_leader_id is None else expect.number(partition_leader_id, "partition_leader_id")
        results = self._run("delete_records", timeout_ms, lambda it: delete_records(it, offsets, leader))
        if len(results.failed) > 1:
            told = ", ".join(f"{tp}: {type(error).__name__}: {error}" for tp, error in results.failed.items())
            raise BrokerError(f"records of {len(results.failed)} partitions could not be deleted: {told}")
        return {tp: plain(result) for tp, result in results.all().items()}

    def elect_leaders(
        self,
        election_type: ElectionType | int,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> ElectLeadersResponse:
        """Elect leaders: preferred replicas (0), or any replica (1), which may lose records.

        ``topic_partitions`` maps topics to partitions, or lists topics; None is for all. A partition that needs no
        election is no error.

        Raises:
            ClusterAuthorizationError: not authorized to alter the cluster.
            PreferredLeaderNotAvailableError: the preferred replica of a partition is not in sync.
            EligibleLeadersNotAvailableError: no replica of a partition is there.
            KafkaError: any other error of a partition, unless ``raise_errors`` is false.
        """
        kind = ElectionType.build_from(election_type)
        raises = expect.flag(raise_errors, "raise_errors")

        def begin(context: CallContext) -> Operation[ElectLeadersResponse]:
            partitions = yield from partitions_by_topic(context, topic_partitions)
            return (yield from elect_leaders(context, kind, partitions))

        response = self._run("elect_leaders", timeout_ms, begin)
        for topic in response.replica_election_results if raises else ():
            for result in topic.partition_result:
                error = error_of(result.error_code, result.error_message)
                if error is not None and not isinstance(error, errors.ElectionNotNeededError):
                    raise error
        return response

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Iterable[int] | None], timeout_ms: int | None = None
    ) -> dict[TopicPartition, type[KafkaError] | None]:
        """Move partitions to other brokers; None cancels a move that is not done.

        Return the class of the error of each partition, None for success. The move itself goes on after this call:
        ``list_partition_reassignments`` lists it until it is done.

        Raises:
            ClusterAuthorizationError: not authorized to alter the cluster.
            KafkaError: an error of the whole request, such as a timeout.
        """
        replicas = new_replicas(reassignments)
        results = self._run("alter_partition_reassignments", timeout_ms, lambda it: alter_reassignments(it, replicas))
        if results.error_of_all is not None:
            raise results.error_of_all
        return error_classes(results.failed, replicas)

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """Return the moves that are not done, of some partitions or of all (None).

        Each is a dict of the lists ``replicas``, ``adding_replicas`` and ``removing_replicas``.
        """

        def begin(context: CallContext) -> Operation[ListPartitionReassignmentsResponse]:
            if topic_partitions is None or isinstance(topic_partitions, Mapping):
                partitions = yield from partitions_by_topic(context, topic_partitions)
            else:
                partitions = by_topic(expect.partitions(topic_partitions, "topic_partitions"))
            return (yield from list_reassignments(context, partitions))

        response = self._run("list_partition_reassignments", timeout_ms, begin)
        return {
            TopicPartition(topic.name, partition.partition_index): {
                "replicas": partition.replicas,
                "adding_replicas": partition.adding_replicas,
                "removing_replicas": partition.removing_replicas,
            }
            for topic in response.topics
            for partition in topic.partitions
        }

    def describe_topic_partitions(
        self, topics: Iterable[str], response_partition_limit: int = 2000, cursor: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return one page of the partitions of topics, with their eligible leader replicas (KIP-966).

        ``next_cursor`` of the result is None at the end, or else the ``cursor`` of the next page.

        Raises:
            UnsupportedVersionError: the brokers are older than Kafka 3.7.
        """
        names = expect.texts(topics, "topics")
        limit = expect.number(response_partition_limit, "response_partition_limit", 1)
        place = None
        if cursor is not None:
            given = expect.mapping(cursor, "cursor", "topic_name and partition_index")
            place = Cursor(
                expect.text(given.get("topic_name"), "topic_name of cursor"),
                expect.number(given.get("partition_index"), "partition_index of cursor"),
            )
        response = self._run(
            "describe_topic_partitions", None, lambda it: describe_topic_partitions(it, names, limit, place)
        )
        found: dict[str, Any] = plain(response)
        del found["throttle_time_ms"]
        for topic, described in zip(found["topics"], response.topics, strict=True):
            topic["topic_id"] = described.topic_id
            for partition in topic["partitions"]:
                for name in ("eligible_leader_replicas", "last_known_elr"):
                    partition[name] = partition[name] or None
        return found

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset of a place in each partition: an OffsetSpec, or a time in milliseconds since the epoch.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            TopicAuthorizationError: not authorized to describe a topic.
            UnsupportedVersionError: the brokers are too old for a place.
            KafkaError: any other error of a partition.
        """
        specs = offset_specs(topic_partition_specs)
        level = IsolationLevel.build_from(isolation_level)
        results = self._run("list_partition_offsets", timeout_ms, lambda it: list_offsets(it, specs, level))
        return {
            tp: OffsetAndTimestamp(found.offset, found.timestamp, _epoch(found.leader_epoch))
            for tp, found in results.all().items()
        }


def _epoch(epoch: int) -> Any:
    """Return a leader epoch; None if it is unknown, as in kafka-python."""
    return None if epoch < 0 else epoch
