"""The admin client. Names are loaded on first use.

- ``admin``, ``descriptions``: the class with typed results, and these
- ``kafka_admin_client``, ``kafka_topics``, ``kafka_cluster``, ``kafka_groups``: the class with kafka-python's methods
- ``topics``, ``partitions``, ``configs``, ``cluster``, ``groups``, ``group_offsets``, ``access``, ``transactions``: the
  steps of the methods of both, by subject
- ``api``, ``admin_calls``: what the calls in these steps are made of, and their requests, lookups and retries
- ``admin_base``: the threads that drive the calls; ``expect``: checks of arguments
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pykclient.admin.access import (
        ClientQuotaFilterComponent as ClientQuotaFilterComponent,
        DelegationToken as DelegationToken,
        ScramCredentialInfo as ScramCredentialInfo,
    )
    from pykclient.admin.admin import Admin as Admin
    from pykclient.admin.cluster import FeatureUpdate as FeatureUpdate
    from pykclient.admin.descriptions import (
        BrokerVersionData as BrokerVersionData,
        ClusterDescription as ClusterDescription,
        ConfigEntry as ConfigEntry,
        ConfigSynonym as ConfigSynonym,
        CreatedTopic as CreatedTopic,
        FeatureMetadata as FeatureMetadata,
        GroupDescription as GroupDescription,
        GroupListing as GroupListing,
        ListedOffset as ListedOffset,
        LogDirDescription as LogDirDescription,
        MemberDescription as MemberDescription,
        PartitionDescription as PartitionDescription,
        PartitionReassignment as PartitionReassignment,
        QuorumInfo as QuorumInfo,
        QuorumReplica as QuorumReplica,
        ReplicaInfo as ReplicaInfo,
        ReplicaLogDirInfo as ReplicaLogDirInfo,
        ShareGroupOffset as ShareGroupOffset,
        TopicDescription as TopicDescription,
        TopicListing as TopicListing,
    )
    from pykclient.admin.groups import (
        Endpoint as Endpoint,
        StreamsGroupDescription as StreamsGroupDescription,
        StreamsGroupMemberAssignment as StreamsGroupMemberAssignment,
        StreamsGroupMemberDescription as StreamsGroupMemberDescription,
        StreamsGroupSubtopologyDescription as StreamsGroupSubtopologyDescription,
        TaskIds as TaskIds,
        TaskOffset as TaskOffset,
        TopicInfo as TopicInfo,
    )
    from pykclient.admin.kafka_admin_client import KafkaAdminClient as KafkaAdminClient
    from pykclient.admin.transactions import FencedProducer as FencedProducer
    from pykclient.admin.values import (
        ACL as ACL,
        AbortTransactionSpec as AbortTransactionSpec,
        ACLFilter as ACLFilter,
        ACLOperation as ACLOperation,
        ACLPermissionType as ACLPermissionType,
        ACLResourcePatternType as ACLResourcePatternType,
        AlterConfigOp as AlterConfigOp,
        ConfigFilterType as ConfigFilterType,
        ConfigResource as ConfigResource,
        ConfigResourceType as ConfigResourceType,
        ConfigSourceType as ConfigSourceType,
        ConfigType as ConfigType,
        ElectionType as ElectionType,
        GroupState as GroupState,
        GroupType as GroupType,
        IsolationLevel as IsolationLevel,
        MemberToRemove as MemberToRemove,
        NewPartitions as NewPartitions,
        NewTopic as NewTopic,
        OffsetSpec as OffsetSpec,
        OffsetTimestamp as OffsetTimestamp,
        PartitionProducerState as PartitionProducerState,
        ProducerState as ProducerState,
        ResourcePattern as ResourcePattern,
        ResourcePatternFilter as ResourcePatternFilter,
        ResourceType as ResourceType,
        Results as Results,
        ScramMechanism as ScramMechanism,
        TopicPartitionReplica as TopicPartitionReplica,
        TransactionDescription as TransactionDescription,
        TransactionListing as TransactionListing,
        TransactionState as TransactionState,
        UpdateFeatureType as UpdateFeatureType,
        UserScramCredentialDeletion as UserScramCredentialDeletion,
        UserScramCredentialUpsertion as UserScramCredentialUpsertion,
    )

#: Public names, by the modules that they live in.
_NAMES = {
    "access": "ClientQuotaFilterComponent DelegationToken ScramCredentialInfo",
    "admin": "Admin",
    "cluster": "FeatureUpdate",
    "descriptions": "BrokerVersionData ClusterDescription ConfigEntry ConfigSynonym CreatedTopic FeatureMetadata "
    "GroupDescription GroupListing ListedOffset LogDirDescription MemberDescription PartitionDescription "
    "PartitionReassignment QuorumInfo QuorumReplica ReplicaInfo ReplicaLogDirInfo ShareGroupOffset TopicDescription "
    "TopicListing",
    "groups": "Endpoint StreamsGroupDescription StreamsGroupMemberAssignment StreamsGroupMemberDescription "
    "StreamsGroupSubtopologyDescription TaskIds TaskOffset TopicInfo",
    "kafka_admin_client": "KafkaAdminClient",
    "transactions": "FencedProducer",
    "values": "AbortTransactionSpec ACL ACLFilter ACLOperation ACLPermissionType ACLResourcePatternType AlterConfigOp "
    "ConfigFilterType ConfigResource ConfigResourceType ConfigSourceType ConfigType ElectionType GroupState GroupType "
    "IsolationLevel MemberToRemove NewPartitions NewTopic OffsetSpec OffsetTimestamp PartitionProducerState "
    "ProducerState ResourcePattern ResourcePatternFilter ResourceType Results ScramMechanism TopicPartitionReplica "
    "TransactionDescription TransactionListing TransactionState UpdateFeatureType UserScramCredentialDeletion "
    "UserScramCredentialUpsertion",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # otherwise type checkers would accept any name, and import none by a star
    __all__ = sorted(_HOME)  # noqa: PLE0605

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
