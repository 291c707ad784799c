"""The admin client with typed results (Java: Admin)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pykclient import topic_names
from pykclient.admin import access, cluster, configs, expect, group_offsets, groups, partitions, topics, transactions
from pykclient.admin.access import ClientQuotaFilterComponent, DelegationToken, Entity, Principal, ScramCredentialInfo
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.api import to_node
from pykclient.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    FeatureMetadata,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirDescription,
    PartitionReassignment,
    QuorumInfo,
    ReplicaLogDirInfo,
    ShareGroupOffset,
    TopicDescription,
    TopicListing,
)
from pykclient.admin.groups import StreamsGroupDescription
from pykclient.admin.topics import describe_topics_in_pages
from pykclient.admin.transactions import FencedProducer
from pykclient.admin.values import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    GroupState,
    GroupType,
    IsolationLevel,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionProducerState,
    Results,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.types import OffsetAndMetadata, TopicPartition

K = TypeVar("K")


class Admin(AdminBase):
    """An admin client with typed results.

    Methods with many items return ``Results``: a value or an error for each item. Methods with one answer return it,
    or raise its error. ``timeout_ms`` is the time for the whole call in milliseconds, by default
    ``default.api.timeout.ms``. Raises: IllegalArgumentError if an argument is wrong, before anything is sent;
    UnsupportedEndpointTypeError if the client is connected to controllers (``bootstrap.controllers``), and only brokers
    serve the call.

    Thread: any.
    """

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        new_topics: Iterable[str | NewTopic] | Mapping[str, Mapping[str, Any]],
        *,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Results[str, CreatedTopic]:
        """Create topics, given as for ``KafkaAdminClient.create_topics``.

        If a connection is lost before the response, the request is repeated. A topic that then exists counts as created
        if it is as it was asked for.
        """
        creatable = topics.creatable_topics(new_topics)
        is_trial = expect.flag(validate_only, "validate_only")
        results = self._run(topics.create_topics(creatable, is_trial), timeout_ms)
        return results.map(topics.created_topic)

    def delete_topics(
        self, topics_or_ids: Iterable[str | UUID], *, timeout_ms: int | None = None
    ) -> Results[str | UUID, None]:
        """Delete topics, given by name or by id.

        If a connection is lost before the response, the request is repeated. A topic that is then gone counts as
        deleted.
        """
        keys = topics.topic_keys(topics_or_ids)
        results = self._run(topics.delete_topics(keys), timeout_ms)
        return results.map(lambda _: None)

    def list_topics(self, *, timeout_ms: int | None = None, list_internal: bool = False) -> list[TopicListing]:
        """Return the topics that this client may describe; with ``list_internal``, also Kafka's internal topics."""
        with_internal = expect.flag(list_internal, "list_internal")
        response = self._run(topics.all_metadata("list_topics"), timeout_ms)
        return [
            TopicListing(topic.name, topics.topic_id_or_none(topic.topic_id), topic.is_internal)
            for topic in response.topics
            if topic.name is not None and (with_internal or not topic.is_internal)
        ]

    def describe_topics(
        self, topics_or_ids: Iterable[str | UUID], *, timeout_ms: int | None = None
    ) -> Results[str | UUID, TopicDescription]:
        """Describe topics, given by name or by id.

        Only the partitions of topics given by name have ``elr`` and ``last_known_elr``.
        """
        keys = topics.topic_keys(topics_or_ids)
        results = self._run(describe_topics_in_pages(keys), timeout_ms)
        return results.map(lambda topic: topics.topic_description(topic, self._node_by_id))

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        *,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Results[str, None]:
        """Raise the numbers of partitions of topics, given as for ``KafkaAdminClient.create_partitions``."""
        wanted = topics.new_partitions(topic_partitions)
        is_trial = expect.flag(validate_only, "validate_only")
        results = self._run(topics.create_partitions(wanted, is_trial), timeout_ms)
        return results.map(lambda _: None)

    # --- records, offsets, leaders, replicas ---

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset in each partition; -1 means the high watermark.

        Return the first offset that is left in each partition.
        """
        wanted = partitions.offsets_to_delete_before(offsets)
        results = self._run(partitions.delete_records(wanted), timeout_ms)
        return results.map(lambda deleted: int(deleted.low_watermark))

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, ListedOffset]:
        """Look up an offset in each partition by an OffsetSpec, or by a time in milliseconds since the epoch.

        The offset of a time after all records is -1.
        """
        wanted = partitions.offset_specs(specs)
        level = IsolationLevel.build_from(isolation_level)
        results = self._run(partitions.list_offsets(wanted, level), timeout_ms)
        return results.map(
            lambda found: ListedOffset(
                found.offset, found.timestamp, None if found.leader_epoch < 0 else found.leader_epoch
            )
        )

    def elect_leaders(
        self,
        election_type: ElectionType | int,
        topic_partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect leaders for the given partitions, or for all (None): the preferred replica, or any replica.

        A partition that needs no election fails with ElectionNotNeededError; if all are asked for, it is left out.
        """
        kind = ElectionType.build_from(election_type)
        wanted = None
        if topic_partitions is not None:
            wanted = partitions.by_topic(topic_names.partitions(topic_partitions, "topic_partitions"))
        response = self._run(partitions.elect_leaders(kind, wanted), timeout_ms)
        return partitions.elected(response, leave_out_unneeded=wanted is None)

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Iterable[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Start to move partitions to other brokers; None cancels a move. Does not wait for the moves.

        Without ``allow_replication_factor_change``, a move to more or fewer brokers fails with
        InvalidReplicationFactorError. Brokers before Kafka 4.1 do not support that (UnsupportedVersionError).
        """
        wanted = partitions.new_replicas(reassignments)
        may_change = expect.flag(allow_replication_factor_change, "allow_replication_factor_change")
        return self._run(partitions.alter_reassignments(wanted, may_change), timeout_ms)

    def list_partition_reassignments(
        self, topic_partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the moves in progress, for some partitions or for all."""
        wanted = None
        if topic_partitions is not None:
            wanted = partitions.by_topic(topic_names.partitions(topic_partitions, "topic_partitions"))
        response = self._run(partitions.list_reassignments(wanted), timeout_ms)
        return partitions.reassignments(response)

    # --- configurations ---

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configurations of resources: all keys, or only those that a resource names in ``configs``."""
        wanted = {resource: configs.keys_of(resource) for resource in configs.resources(resources)}
        synonyms = expect.flag(include_synonyms, "include_synonyms")
        texts = expect.flag(include_documentation, "include_documentation")
        results = self._run(configs.describe_configs(wanted, synonyms, texts), timeout_ms)
        return results.map(configs.config_entries)

    def incremental_alter_configs(
        self, resources: Iterable[ConfigResource], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Results[ConfigResource, None]:
        """Change configurations. A resource's ``configs`` maps keys to values, or to ``(AlterConfigOp, value)``.

        The other keys stay as they are.
        """
        changes = {resource: configs.changes_of(resource) for resource in configs.resources(resources)}
        is_trial = expect.flag(validate_only, "validate_only")
        results = self._run(configs.alter_configs(changes, is_trial), timeout_ms)
        return results.map(lambda _: None)

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """Return the resources that have configurations, of some types or of all."""
        given = expect.items(resource_types, "resource_types", "types")
        types = [ConfigResourceType.build_from(kind) for kind in given]
        return self._run(configs.list_config_resources(types), timeout_ms)

    def list_client_metrics_resources(self, *, timeout_ms: int | None = None) -> list[str]:
        """Return the names of the subscriptions to client metrics (KIP-714).

        They are created and deleted by changes of their configurations.
        """
        kinds = [ConfigResourceType.CLIENT_METRICS]
        found = self._run(configs.list_config_resources(kinds), timeout_ms)
        return [resource.name for resource in found]

    # --- the cluster ---

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, its brokers, and the broker that it names as controller.

        If the client is connected to controllers, return those, and the active one.
        """
        return cluster.cluster_description(self._run(cluster.describe_cluster(), timeout_ms))

    def client_instance_id(self, *, timeout_ms: int | None = None) -> UUID:
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

        Raises:
            IllegalStateError: telemetry is disabled. ``enable.metrics.push`` is off by default for admin clients.
            UnsupportedVersionError: the brokers have no receiver for metrics.
        """
        return self._run(cluster.client_instance_id(), timeout_ms)

    def describe_log_dirs(
        self, broker_ids: Iterable[int], *, timeout_ms: int | None = None
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Return the log directories of brokers by path."""
        ids = cluster.broker_id_arguments(broker_ids, "broker_ids")
        results = self._run(cluster.describe_log_dirs(None, ids), timeout_ms)
        return results.map(cluster.log_dirs)

    def alter_replica_log_dirs(
        self, directories: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, None]:
        """Move replicas to other log directories of their brokers."""
        wanted = cluster.directories(directories)
        return self._run(cluster.alter_replica_log_dirs(wanted), timeout_ms)

    def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Return the log directories of replicas, and those to which replicas are being moved.

        A replica that its broker does not have has a result without a directory, not an error.
        """
        wanted = cluster.replicas_to_describe(replicas)
        return self._run(cluster.describe_replica_log_dirs(wanted), timeout_ms)

    def describe_features(self, *, node_id: int | None = None, timeout_ms: int | None = None) -> FeatureMetadata:
        """Return the supported and finalized levels of features from the given node, or from any (None)."""
        lookup = None if node_id is None else to_node(expect.number(node_id, "node_id"))
        response = self._run(cluster.api_versions("describe_features", lookup), timeout_ms)
        return cluster.features(response)

    def update_features(
        self, updates: Mapping[str, Any], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Change the levels of features, given as levels or as ``FeatureUpdate(level, kind)``. Level 0 removes one."""
        wanted = cluster.feature_updates(updates)
        is_trial = expect.flag(validate_only, "validate_only")
        return self._run(cluster.update_features(wanted, is_trial), timeout_ms)

    def describe_metadata_quorum(self, *, timeout_ms: int | None = None) -> QuorumInfo:
        """Return the state of the quorum of controllers."""
        return cluster.quorum_info(self._run(cluster.describe_quorum(), timeout_ms))

    def add_raft_voter(
        self,
        voter_id: int,
        directory_id: UUID,
        endpoints: Iterable[tuple[str, str, int]],
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Add a controller to the voters of the quorum. ``endpoints`` are ``(listener, host, port)``."""
        voter = expect.number(voter_id, "voter_id")
        directory = expect.uuid(directory_id, "directory_id")
        name = expect.optional_text(cluster_id, "cluster_id")
        self._run(cluster.add_raft_voter(name, voter, directory, endpoints), timeout_ms)

    def remove_raft_voter(
        self, voter_id: int, directory_id: UUID, *, cluster_id: str | None = None, timeout_ms: int | None = None
    ) -> None:
        """Remove a controller from the voters of the quorum."""
        voter = expect.number(voter_id, "voter_id")
        directory = expect.uuid(directory_id, "directory_id")
        name = expect.optional_text(cluster_id, "cluster_id")
        self._run(cluster.remove_raft_voter(name, voter, directory), timeout_ms)

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Unregister a broker that is down for good."""
        id = expect.number(broker_id, "broker_id")
        self._run(cluster.unregister_broker(id), timeout_ms)

    # --- groups ---

    def list_groups(
        self,
        *,
        states: Iterable[GroupState | str] = (),
        types: Iterable[GroupType | str] = (),
        protocol_types: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """Return all groups, or only those with the given states, types or protocol types.

        The protocol type of a group that only commits offsets is empty.

        Raises:
            KafkaError: a broker could not list its groups. The list would not be complete.
        """
        states_asked = [GroupState.build_from(state) for state in expect.items(states, "states", "states")]
        types_asked = [GroupType.build_from(kind) for kind in expect.items(types, "types", "types")]
        protocols = expect.texts(protocol_types, "protocol_types")
        results = self._run(groups.list_groups(None, states_asked, types_asked), timeout_ms)
        listed = [groups.group_listing(group) for of_broker in results.all().values() for group in of_broker]
        return [group for group in listed if not protocols or group.protocol_type in protocols]

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Results[str, GroupDescription]:
        """Describe groups of any type: of the classic or the consumer protocol, share groups, or streams groups.

        A group that does not exist fails with GroupIdNotFoundError. ``describe_streams_groups`` tells more of streams
        groups: their topologies and tasks.
        """
        ids = expect.texts(group_ids, "group_ids")
        return self._run(groups.describe_groups(ids), timeout_ms)

    def describe_streams_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Results[str, StreamsGroupDescription]:
        """Describe groups of Kafka Streams' own protocol (KIP-1071), with their topologies and tasks.

        A group that does not exist, or is of another type, fails with GroupIdNotFoundError.
        """
        ids = expect.texts(group_ids, "group_ids")
        return self._run(groups.describe_streams_groups(ids), timeout_ms)

    def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Results[str, None]:
        """Delete groups of any type that have no members, with their offsets."""
        ids = expect.texts(group_ids, "group_ids")
        return self._run(groups.delete_groups(ids), timeout_ms)

    def remove_members(
        self, group_id: str, members: Iterable[MemberToRemove] | None = None, *, timeout_ms: int | None = None
    ) -> Results[MemberToRemove, None]:
        """Remove the given members from a group of the classic protocol, or all current members (None)."""
        group = expect.text(group_id, "group_id")
        if members is None:
            return self._run(groups.remove_all_members(group), timeout_ms)
        wanted = groups.members_to_remove(members)
        return self._run(groups.remove_members(group, wanted), timeout_ms)

    def list_group_offsets(
        self,
        group_specs: Mapping[str, Iterable[TopicPartition] | None] | Iterable[str] | str,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return the committed offsets of groups, for the given partitions or for all committed ones (None).

        The offset of a given partition is None if the group has none. With ``require_stable``, wait for the end of
        transactions that will commit offsets of these partitions (KIP-447).
        """
        specs = group_offsets.group_specs(group_specs)
        stable = expect.flag(require_stable, "require_stable")
        results = self._run(group_offsets.list_group_offsets(specs, stable), timeout_ms)
        return results.map(lambda offsets: {tp: found if found.offset >= 0 else None for tp, found in offsets.items()})

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, None]:
        """Set offsets of a group, which must have no members."""
        group = expect.text(group_id, "group_id")
        wanted = group_offsets.new_offsets(offsets)
        return self._run(group_offsets.alter_group_offsets(group, wanted, None), timeout_ms)

    def delete_group_offsets(
        self, group_id: str, partitions_to_delete: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets of a group. No member may subscribe to their topics."""
        group = expect.text(group_id, "group_id")
        wanted = topic_names.partitions(partitions_to_delete, "partitions_to_delete")
        return self._run(group_offsets.delete_group_offsets(group, wanted, None), timeout_ms)

    def list_share_group_offsets(
        self,
        group_specs: Mapping[str, Iterable[TopicPartition] | None] | Iterable[str] | str,
        *,
        timeout_ms: int | None = None,
    ) -> Results[str, dict[TopicPartition, ShareGroupOffset]]:
        """Return the start offsets of share groups, for the given partitions or for all that they have read (None)."""
        specs = group_offsets.group_specs(group_specs)
        return self._run(group_offsets.describe_share_group_offsets(specs), timeout_ms)

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group. The group must have no members."""
        group = expect.text(group_id, "group_id")
        wanted = {tp: found.offset for tp, found in group_offsets.new_offsets(offsets).items()}
        return self._run(group_offsets.alter_share_group_offsets(group, wanted), timeout_ms)

    def delete_share_group_offsets(
        self, group_id: str, topic_names: Iterable[str], *, timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Delete the start offsets of a share group in topics. The group must have no members."""
        group = expect.text(group_id, "group_id")
        names = expect.texts(topic_names, "topic_names")
        return self._run(group_offsets.delete_share_group_offsets(group, names), timeout_ms)

    # --- access ---

    def describe_acls(self, acl_filter: ACLFilter, *, timeout_ms: int | None = None) -> list[ACL]:
        """Return the ACLs that match a filter."""
        (wanted,) = access.acl_arguments([acl_filter], ACLFilter, "acl_filter")
        return self._run(access.describe_acls(wanted), timeout_ms)

    def create_acls(self, acls: Iterable[ACL], *, timeout_ms: int | None = None) -> Results[ACL, None]:
        """Create ACLs. Creating one that exists already succeeds."""
        wanted = access.acl_arguments(acls, ACL, "acls")
        return self._run(access.create_acls(wanted), timeout_ms)

    def delete_acls(
        self, acl_filters: Iterable[ACLFilter], *, timeout_ms: int | None = None
    ) -> Results[ACLFilter, Results[ACL, None]]:
        """Delete the ACLs that match filters, and return the outcome of each matching ACL, by filter.

        If a connection is lost before the response, the request is repeated. The ACLs that the first request has
        deleted are then not in the result.
        """
        wanted = access.acl_arguments(acl_filters, ACLFilter, "acl_filters")
        return self._run(access.delete_acls(wanted), timeout_ms)

    def describe_client_quotas(
        self,
        components: Iterable[ClientQuotaFilterComponent] = (),
        *,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[Entity, dict[str, float]]:
        """Return quotas by entity, a tuple of ``(type, name)`` pairs; the name None means the default entity.

        Entities match all ``components``; with ``strict``, they have no other types.
        """
        wanted = access.quota_filter(components)
        is_strict = expect.flag(strict, "strict")
        return self._run(access.describe_quotas(wanted, is_strict), timeout_ms)

    def alter_client_quotas(
        self,
        alterations: Iterable[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[Entity, None]:
        """Set quotas of entities, or remove them (None).

        ``alterations`` are pairs of an entity and its quotas, such as
        ``({"user": "alice"}, {"producer_byte_rate": 1_000_000})``; the name None stands for the default entity.
        """
        wanted = access.quota_changes(alterations)
        is_trial = expect.flag(validate_only, "validate_only")
        return self._run(access.alter_quotas(wanted, is_trial), timeout_ms)

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Results[str, list[ScramCredentialInfo]]:
        """Return the SCRAM mechanisms of the given users, or of all. A user without credentials has an error."""
        asked = None if users is None else expect.texts(users, "users")
        found = self._run(access.describe_scram(asked), timeout_ms)
        return access.scram_infos(found)

    def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion],
        *,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Create, replace and delete SCRAM credentials, and return the outcome by user."""
        wanted = access.scram_alterations(alterations)
        return self._run(access.alter_scram(wanted), timeout_ms)

    def create_delegation_token(
        self,
        renewers: Iterable[Principal | str] = (),
        *,
        max_lifetime_ms: int = -1,
        owner: Principal | str | None = None,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Create a delegation token. Principals are pairs, or texts such as ``"User:alice"``.

        ``max_lifetime_ms`` -1 is for the brokers' default. Another ``owner`` needs the permission for that.
        """
        who = access.principals(renewers, "renewers")
        whose = None if owner is None else access.principals([owner], "owner")[0]
        most_ms = expect.number(max_lifetime_ms, "max_lifetime_ms", -1, expect.INT64)
        return self._run(access.create_token(who, most_ms, whose), timeout_ms)

    def describe_delegation_tokens(
        self, owners: Iterable[Principal | str] | None = None, *, timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """Return the delegation tokens of the given owners, or all that this user may describe (None)."""
        asked = None if owners is None else access.principals(owners, "owners")
        return self._run(access.describe_tokens(asked), timeout_ms)

    def renew_delegation_token(self, hmac: bytes, *, renew_period_ms: int = -1, timeout_ms: int | None = None) -> int:
        """Extend the life of a token, and return when it expires, in milliseconds since the epoch."""
        key = access.secret(hmac)
        period_ms = expect.number(renew_period_ms, "renew_period_ms", -1, expect.INT64)
        return self._run(access.renew_token(key, period_ms), timeout_ms)

    def expire_delegation_token(self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: int | None = None) -> int:
        """Let a token expire after ``expiry_period_ms`` (at once if -1), and return the time of expiry."""
        key = access.secret(hmac)
        period_ms = expect.number(expiry_period_ms, "expiry_period_ms", -1, expect.INT64)
        return self._run(access.expire_token(key, period_ms), timeout_ms)

    # --- transactions ---

    def list_transactions(
        self,
        *,
        producer_ids: Iterable[int] = (),
        states: Iterable[TransactionState | str] = (),
        duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactions of all coordinators that match all conditions.

        Raises:
            KafkaError: a broker could not list its transactions. The list would not be complete.
        """
        wanted = transactions.transaction_filter(producer_ids, states, duration_ms, transactional_id_pattern)
        results = self._run(transactions.list_transactions(None, wanted), timeout_ms)
        return [found for listed in results.all().values() for found in listed]

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Results[str, TransactionDescription]:
        """Describe transactions by their transactional ids."""
        ids = expect.texts(transactional_ids, "transactional_ids")
        return self._run(transactions.describe_transactions(ids), timeout_ms)

    def describe_producers(
        self, topic_partitions: Iterable[TopicPartition], *, broker_id: int | None = None, timeout_ms: int | None = None
    ) -> Results[TopicPartition, PartitionProducerState]:
        """Return the active producers of partitions, according to their leaders or to one broker."""
        wanted = topic_names.partitions(topic_partitions, "topic_partitions")
        broker = None if broker_id is None else expect.number(broker_id, "broker_id")
        return self._run(transactions.describe_producers(wanted, broker), timeout_ms)

    def abort_transaction(self, spec: AbortTransactionSpec, *, timeout_ms: int | None = None) -> None:
        """Abort a producer's hanging transaction on one partition."""
        wanted = transactions.abort_spec(spec)
        results = self._run(transactions.abort_transaction(wanted), timeout_ms)
        results.all()

    def end_transaction(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, *, timeout_ms: int | None = None
    ) -> None:
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
        results = self._run(transactions.end_transactions(ends, is_commit), timeout_ms)
        results.all()

    def end_transactions(
        self, open_transactions: Mapping[str, tuple[int, int]], commit: bool, *, timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Commit or abort several transactions at once, like ``end_transaction``.

        ``open_transactions`` maps transactional ids to pairs of a producer id and an epoch. The transactions are
        independent of each other: each succeeds or fails on its own.
        """
        ends = transactions.open_transactions_argument(open_transactions)
        is_commit = expect.flag(commit, "commit")
        return self._run(transactions.end_transactions(ends, is_commit), timeout_ms)

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Results[str, FencedProducer]:
        """Fence the producers with these transactional ids: abort their transactions, and reject what they send."""
        ids = expect.texts(transactional_ids, "transactional_ids")
        return self._run(transactions.fence_producers(ids), timeout_ms)

    def force_terminate_transaction(self, transactional_id: str, *, timeout_ms: int | None = None) -> None:
        """Abort the transaction of a transactional id, and fence its producer. Succeeds if there is none."""
        id = expect.text(transactional_id, "transactional_id")
        self._run(transactions.force_terminate_transaction(id), timeout_ms)
