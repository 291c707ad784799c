"""Groups and transactions with kafka-python's methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykclient import topic_names
from pykclient.admin import cluster, expect, group_offsets, groups, transactions
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.admin_calls import Steps
from pykclient.admin.kafka_cluster import error_classes
from pykclient.admin.plain import answered, kafka_python_name, plain, shown_error, with_operations
from pykclient.admin.values import (
    AbortTransactionSpec,
    GroupState,
    GroupType,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    PartitionProducerState,
    Results,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from pykclient.errors import GroupIdNotFoundError, KafkaError
from pykclient.protocol.messages.describe_groups import DescribeGroupsResponse
from pykclient.types import OffsetAndMetadata, TopicPartition


def _coordinator_id(value: int | None) -> int | None:
    return None if value is None else expect.number(value, "group_coordinator_id")


class GroupCalls(AdminBase):
    """Groups and their offsets."""

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Describe groups of the classic protocol, by their ids.

        Subscriptions and assignments of consumers are decoded. ``error`` of a group is None or the text of its error.
        Authorized operations are always asked for, as in kafka-python. ``Admin.describe_groups`` describes groups of
        every type.

        Raises:
            KafkaError: an error that no broker has reported for a group, such as a timeout.
        """
        expect.flag(include_authorized_operations, "include_authorized_operations")
        ids = expect.texts(group_ids, "group_ids")
        broker = _coordinator_id(group_coordinator_id)
        results = answered(self._run(groups.describe_classic_groups(ids, broker)))
        return {group: _described(group, results) for group in ids}

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a dict for each group, optionally only of some brokers, states or types.

        Raises:
            ClusterAuthorizationError: not authorized to describe the cluster.
            UnsupportedVersionError: the brokers are too old for a filter.
        """
        brokers = None if broker_ids is None else cluster.broker_id_arguments(broker_ids, "broker_ids")
        states_asked = expect.optional_items(states_filter, "states_filter", "states")
        states = [GroupState.build_from(state) for state in states_asked]
        types = [GroupType.build_from(kind) for kind in expect.optional_items(types_filter, "types_filter", "types")]
        results = self._run(groups.list_groups(brokers, states, types))
        return [plain(group) for listed in results.all().values() for group in listed]

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups without members, with their offsets. Return ``"OK"`` or the error's name for each.

        Raises:
            KafkaError: an error that no broker has reported for a group, such as a timeout.
        """
        ids = expect.texts(group_ids, "group_ids")
        broker = _coordinator_id(group_coordinator_id)
        failed = answered(self._run(groups.delete_groups(ids, broker))).failed
        return {group: kafka_python_name(failed[group]) if group in failed else "OK" for group in ids}

    def list_group_offsets(
        self, group_specs: Mapping[str, Iterable[TopicPartition] | None] | Iterable[str] | str
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of groups.

        ``group_specs`` maps groups to partitions, or to None for all that have offsets; or it names one group or
        several. A given partition without an offset has the offset -1.

        Raises:
            GroupAuthorizationError: not authorized to describe a group.
            KafkaError: any other error of a group or partition.
        """
        specs = group_offsets.group_specs(group_specs)
        return self._run(group_offsets.list_group_offsets(specs)).all()

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Set offsets of a group, which must have no members.

        Return the class of the error of each partition, NoError for success.

        Raises:
            KafkaError: an error that no broker has reported for a partition, such as a timeout.
        """
        group = expect.text(group_id, "group_id")
        wanted = group_offsets.new_offsets(offsets)
        broker = _coordinator_id(group_coordinator_id)
        results = self._run(group_offsets.alter_group_offsets(group, wanted, broker))
        return error_classes(results, wanted)

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Reset offsets of a group without members: to the beginning or end, to times, or to offsets.

        Each offset is brought into the range of its partition; a time after all records means the end. Return a dict of
        ``error``, a class (NoError for success), and ``offset`` for each partition.

        Raises:
            KafkaError: an error that no broker has reported for a partition, or one in looking up the offsets.
        """
        group = expect.text(group_id, "group_id")
        targets = group_offsets.reset_targets(offset_specs)
        broker = _coordinator_id(group_coordinator_id)
        if not targets:
            return {}

        def steps() -> Steps[tuple[dict[TopicPartition, OffsetAndMetadata], Results[TopicPartition, None]]]:
            offsets = yield from group_offsets.reset_offsets(group, targets)
            return offsets, (yield from group_offsets.alter_group_offsets(group, offsets, broker))

        offsets, results = self._run(steps())
        classes = error_classes(results, offsets)
        return {tp: {"error": classes[tp], "offset": offsets[tp].offset} for tp in offsets}

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Delete committed offsets of a group. No member may subscribe to their topics.

        Return the class of the error of each partition, NoError for success.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            GroupNotEmptyError: the group has members, and is not one of consumers.
            KafkaError: any other error of the group as a whole.
        """
        group = expect.text(group_id, "group_id")
        wanted = topic_names.partitions(partitions, "partitions")
        broker = _coordinator_id(group_coordinator_id)
        results = self._run(group_offsets.delete_group_offsets(group, wanted, broker))
        return error_classes(results, wanted)

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[KafkaError]]:
        """Remove members from a group of the classic protocol.

        Return the class of the error of each member by its id, NoError for success. A static member without a
        ``member_id`` is found by its ``group_instance_id``.

        Raises:
            UnsupportedVersionError: the brokers are older than Kafka 2.4.
            KafkaError: an error of the group as a whole.
        """
        group = expect.text(group_id, "group_id")
        wanted = groups.members_to_remove(members)
        broker = _coordinator_id(group_coordinator_id)
        results = self._run(groups.remove_members(group, wanted, broker))
        classes = error_classes(results, wanted)
        return {member.member_id or member.group_instance_id or "": error for member, error in classes.items()}


def _described(group: str, results: Results[str, groups.Described]) -> dict[str, Any]:
    error = results.failed.get(group)
    if group in results.succeeded:
        found = results.succeeded[group].group
    else:
        found = DescribeGroupsResponse.DescribedGroup(
            group_id=group, group_state="Dead" if isinstance(error, GroupIdNotFoundError) else ""
        )
    told = with_operations(plain(found))
    del told["error_code"], told["error_message"]
    for member, raw in zip(told["members"], found.members, strict=True):
        subscription, assignment = groups.decoded(raw.member_metadata, raw.member_assignment)
        member["member_metadata"] = plain(subscription) if subscription is not None else raw.member_metadata
        member["member_assignment"] = plain(assignment) if assignment is not None else raw.member_assignment
    told["error"] = None if error is None else shown_error(error)
    return told


class TransactionCalls(AdminBase):
    """Transactions and producers."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Return the transactions that match all filters, by the broker that coordinates them.

        ``duration_filter_ms`` is how long they have been open at least. ``transactional_id_pattern`` is a regular
        expression.

        Raises:
            UnsupportedVersionError: the brokers are too old for a filter.
            KafkaError: a broker could not list its transactions.
        """
        brokers = None if broker_ids is None else cluster.broker_id_arguments(broker_ids, "broker_ids")
        wanted = transactions.transaction_filter(
            producer_id_filters, state_filters, duration_filter_ms, transactional_id_pattern
        )
        return self._run(transactions.list_transactions(brokers, wanted)).all()

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Describe transactions by their transactional ids.

        Raises:
            TransactionalIdNotFoundError: a coordinator does not know an id.
            TransactionalIdAuthorizationError: not authorized to describe an id.
            KafkaError: any other error of an id.
        """
        ids = expect.texts(transactional_ids, "transactional_ids")
        return self._run(transactions.describe_transactions(ids)).all()

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Return the active producers of partitions, according to their leaders or to one broker.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            NotLeaderOrFollowerError: the named broker has no replica of a partition.
            KafkaError: any other error of a partition.
        """
        wanted = topic_names.partitions(partitions, "partitions")
        broker = None if broker_id is None else expect.number(broker_id, "broker_id")
        return self._run(transactions.describe_producers(wanted, broker)).all()

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Abort a producer's hanging transaction on one partition.

        Raises:
            InvalidProducerEpochError: the producer has another epoch by now.
            ClusterAuthorizationError: not authorized to alter the cluster.
            KafkaError: any other error of the partition.
        """
        wanted = transactions.abort_spec(spec)
        self._run(transactions.abort_transaction(wanted)).all()

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, commit: bool) -> None:
        """Commit or abort a transaction that its producer left open by ``KafkaProducer.close(keep_transaction=True)``.

        ``producer_id`` and ``epoch`` are the producer's ``producer_id_and_epoch``. The call can be repeated: ending a
        transaction again in the same way succeeds, until a producer with its ``transactional_id`` has started since.
        Kafka's own clients end only transactions of their own.

        Raises:
            InvalidTxnStateError: the transaction was ended in the other way, or has no records.
            ProducerFencedError: a later producer has the ``transactional_id``, or the transaction has timed out.
            InvalidPidMappingError: the coordinator has another producer id, or none, for the id.
            TransactionalIdAuthorizationError: not authorized to write with the ``transactional_id``.
            KafkaError: any other error, or the call has timed out. The transaction may have been ended.
        """
        id = expect.text(transactional_id, "transactional_id")
        ends = transactions.open_transactions_argument({id: (producer_id, epoch)})
        is_commit = expect.flag(commit, "commit")
        self._run(transactions.end_transactions(ends, is_commit)).all()

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900000
    ) -> list[dict[str, Any]]:
        """Return transactions open for over five minutes more than ``max_transaction_timeout_ms``.

        That should be the brokers' ``transaction.max.timeout.ms``. The ages are by the clock of this machine.
        """
        brokers = None if broker_ids is None else cluster.broker_id_arguments(broker_ids, "broker_ids")
        most_ms = expect.number(max_transaction_timeout_ms, "max_transaction_timeout_ms")
        wall_ms = self._components.clock.wall_ms()
        found = self._run(transactions.hanging_transactions(brokers, most_ms, wall_ms))
        return [dict(transactions.as_kafka_python(transaction)) for transaction in found]
