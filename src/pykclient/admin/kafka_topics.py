"""Topics and partitions with kafka-python's methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from pykclient import errors, topic_names
from pykclient.admin import expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.admin_calls import Steps
from pykclient.admin.api import item_error
from pykclient.admin.kafka_cluster import error_classes
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
from pykclient.admin.plain import answered, plain, with_operations
from pykclient.admin.topics import (
    Cursor,
    all_metadata,
    creatable_topics,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    describe_topics,
    new_partitions,
    topic_keys,
)
from pykclient.admin.values import (
    ConfigSourceType,
    ElectionType,
    IsolationLevel,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    Results,
)
from pykclient.errors import BrokerError, IllegalArgumentError, KafkaError, KafkaTimeoutError, NoError
from pykclient.protocol.messages.create_partitions import CreatePartitionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsResponse
from pykclient.protocol.messages.elect_leaders import ElectLeadersResponse
from pykclient.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from pykclient.types import OffsetAndTimestamp, TopicPartition

_Result = CreatePartitionsResponse.CreatePartitionsTopicResult
_WAIT_INTERVAL_MS = 100


def raise_first(results: Results[Any, Any], *, also_broker_errors: bool) -> None:
    """Raise the first error of an item.

    Errors that no broker has reported, such as a timeout, have no place in a response and are always raised; those of
    a broker only if they are asked for.

    Raises:
        KafkaError: the error.
    """
    if also_broker_errors:
        results.all()
    answered(results)


def error_fields(error: KafkaError) -> dict[str, Any]:
    """Return the fields of a response that an error was made from."""
    return {"error_code": error.code if isinstance(error, BrokerError) else -1, "error_message": str(error)}


class TopicCalls(AdminBase):
    """Topics and their partitions."""

    def create_topics(
        self,
        new_topics: Iterable[str | NewTopic] | Mapping[str, Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics.

        ``new_topics`` is a list of names or NewTopic objects, or a dict of options by name: ``num_partitions`` and
        ``replication_factor`` (default: the brokers' defaults), ``assignments`` (broker ids by partition) and
        ``configs``. With ``validate_only``, the brokers only check the request. With ``wait_for_metadata``, wait until
        all partitions have leaders. ``timeout_ms`` is in milliseconds, by default ``default.api.timeout.ms``.

        Return ``{"topics": [...]}`` with a dict for each topic. With ``raise_errors=False``, the errors of topics are
        in these dicts.

        Raises:
            TopicExistsError: a topic exists already.
            PolicyViolationError: a policy of the brokers does not allow a topic.
            TopicAuthorizationError: not authorized to create a topic.
            KafkaTimeoutError: it was not done within ``timeout_ms``.
            IllegalArgumentError: an argument is wrong.
            KafkaError: any other error of a topic.
        """
        is_trial = expect.flag(validate_only, "validate_only")
        waits = expect.flag(wait_for_metadata, "wait_for_metadata")
        raises = expect.flag(raise_errors, "raise_errors")
        if is_trial and waits:
            raise IllegalArgumentError("with validate_only there is nothing to wait for: leave out wait_for_metadata")
        creatable = creatable_topics(new_topics)
        results = self._run(create_topics(creatable, is_trial), timeout_ms)
        raise_first(results, also_broker_errors=raises)
        if waits:
            self.wait_for_topics(list(creatable))
        found = []
        for name in creatable:
            if name in results.failed:
                topic = plain(CreateTopicsResponse.CreatableTopicResult(name=name, error_message=None))
                topic.update(error_fields(results.failed[name]))
            else:
                topic = plain(results.succeeded[name])
            configs = topic.pop("configs")
            if configs:
                topic["configs"] = {config.pop("name"): _with_source(config) for config in configs}
            found.append(topic)
        return {"topics": found}

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: int = 10000) -> None:
        """Wait until all partitions of the topics have leaders.

        Raises:
            KafkaTimeoutError: they have not within ``timeout_ms``; the text tells what is missing.
        """
        names = expect.texts(topic_names, "topic_names")
        clock = self._components.clock
        end_ms = clock.now_ms() + expect.number(timeout_ms, "timeout_ms")
        while names:
            missing: dict[str, str] = {}
            found = self._run(describe_topics(names), timeout_ms)
            for name in names:
                if name in found.failed:
                    missing[name] = str(found.failed[name])
                elif leaderless := [
                    partition.partition_index
                    for partition in found.succeeded[name].partitions
                    if partition.leader_id < 0 or partition.error_code
                ]:
                    missing[name] = f"no leader of partitions {leaderless}"
                elif not found.succeeded[name].partitions:
                    missing[name] = "no partitions yet"
            if not missing:
                return
            if clock.now_ms() >= end_ms:
                raise KafkaTimeoutError(f"topics are not ready after {timeout_ms} ms: {missing}")
            clock.sleep_ms(_WAIT_INTERVAL_MS)

    def delete_topics(
        self, topics: Iterable[str | UUID], timeout_ms: int | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics, given by name or by id.

        Return ``{"topics": [...]}`` with a dict for each topic. With ``raise_errors=False``, the errors of topics are
        in these dicts.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            TopicAuthorizationError: not authorized to delete a topic.
            KafkaTimeoutError: it was not done within ``timeout_ms``.
            KafkaError: any other error of a topic.
        """
        keys = topic_keys(topics)
        raises = expect.flag(raise_errors, "raise_errors")
        results = self._run(delete_topics(keys), timeout_ms)
        raise_first(results, also_broker_errors=raises)
        found = []
        for key in keys:
            if key in results.failed:
                topic = DeleteTopicsResponse.DeletableTopicResult(name=None, error_message=None)
                if isinstance(key, UUID):
                    topic.topic_id = key
                else:
                    topic.name = key
                found.append({**plain(topic), **error_fields(results.failed[key])})
            else:
                found.append(plain(results.succeeded[key]))
        return {"topics": found}

    def list_topics(self) -> list[str]:
        """Return the names of all topics that this client may describe."""
        response = self._run(all_metadata("list_topics"))
        return [topic.name for topic in response.topics if topic.name is not None]

    def describe_topics(self, topics: Iterable[str | UUID] | None = None) -> list[dict[str, Any]]:
        """Return a dict for each topic (default: all), given by name or id. A topic's error is in its dict."""
        keys = None if topics is None else topic_keys(topics)
        response = self._run(all_metadata("describe_topics", keys))
        return [with_operations(plain(topic)) for topic in response.topics]

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> CreatePartitionsResponse:
        """Add partitions to topics.

        ``topic_partitions`` maps each topic to the number of partitions that it shall have, or to a NewPartitions, or
        to a dict with ``count`` and ``assignments``, the replicas of each new partition. With ``raise_errors=False``,
        the errors of topics are in the response.

        Raises:
            InvalidPartitionsError: a topic has as many partitions already.
            KafkaError: any other error of a topic.
        """
        wanted = new_partitions(topic_partitions)
        is_trial = expect.flag(validate_only, "validate_only")
        raises = expect.flag(raise_errors, "raise_errors")
        results = self._run(create_partitions(wanted, is_trial), timeout_ms)
        raise_first(results, also_broker_errors=raises)
        return CreatePartitionsResponse(
            results=[
                results.succeeded[name]
                if name in results.succeeded
                else _Result(name=name, **error_fields(results.failed[name]))
                for name in wanted
            ]
        )


def _with_source(config: dict[str, Any]) -> dict[str, Any]:
    config["config_source"] = ConfigSourceType.build_from(config["config_source"]).name
    return config


class PartitionCalls(AdminBase):
    """Records, offsets, leaders and replicas of partitions."""

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete the records before an offset in each partition; -1 means the high watermark.

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
        results = self._run(delete_records(offsets, leader), timeout_ms)
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

        def steps() -> Steps[ElectLeadersResponse]:
            partitions = yield from partitions_by_topic(topic_partitions)
            return (yield from elect_leaders(kind, partitions))

        response = self._run(steps(), timeout_ms)
        for topic in response.replica_election_results if raises else ():
            for result in topic.partition_result:
                error = item_error(result)
                if error is not None and not isinstance(error, errors.ElectionNotNeededError):
                    raise error
        return response

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Iterable[int] | None], timeout_ms: int | None = None
    ) -> dict[TopicPartition, type[KafkaError] | None]:
        """Start to move partitions to other brokers; None cancels a move in progress.

        Return the class of the error of each partition, None for success. The move itself continues after this call:
        ``list_partition_reassignments`` lists it until it is done.

        Raises:
            ClusterAuthorizationError: not authorized to alter the cluster.
            KafkaError: an error of the whole request, such as a timeout.
        """
        replicas = new_replicas(reassignments)
        results = self._run(alter_reassignments(replicas), timeout_ms)
        classes = error_classes(results, replicas)
        return {tp: None if error is NoError else error for tp, error in classes.items()}

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """Return the moves in progress, for some partitions or for all (None).

        Each is a dict of the lists ``replicas``, ``adding_replicas`` and ``removing_replicas``.
        """

        def steps() -> Steps[ListPartitionReassignmentsResponse]:
            if topic_partitions is None or isinstance(topic_partitions, Mapping):
                partitions = yield from partitions_by_topic(topic_partitions)
            else:
                partitions = by_topic(topic_names.partitions(topic_partitions, "topic_partitions"))
            return (yield from list_reassignments(partitions))

        response = self._run(steps(), timeout_ms)
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
        response = self._run(describe_topic_partitions(names, limit, place))
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
        """Look up an offset in each partition by an OffsetSpec, or by a time in milliseconds since the epoch.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            TopicAuthorizationError: not authorized to describe a topic.
            UnsupportedVersionError: the brokers are too old for a place.
            KafkaError: any other error of a partition.
        """
        specs = offset_specs(topic_partition_specs)
        level = IsolationLevel.build_from(isolation_level)
        results = self._run(list_offsets(specs, level), timeout_ms)
        return {
            tp: OffsetAndTimestamp(found.offset, found.timestamp, _epoch(found.leader_epoch))
            for tp, found in results.all().items()
        }


def _epoch(epoch: int) -> Any:
    """Return a leader epoch; None if it is unknown, as in kafka-python."""
    return None if epoch < 0 else epoch
