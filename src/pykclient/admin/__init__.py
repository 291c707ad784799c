"""The admin client. Names are loaded on first use."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pykclient.admin.access import (
        ClientQuotaFilterComponent as ClientQuotaFilterComponent,
    )
    from pykclient.admin.access import (
        DelegationToken as DelegationToken,
    )
    from pykclient.admin.access import (
        ScramCredentialInfo as ScramCredentialInfo,
    )
    from pykclient.admin.admin import (
        Admin as Admin,
    )
    from pykclient.admin.cluster import (
        FeatureUpdate as FeatureUpdate,
    )
    from pykclient.admin.descriptions import (
        BrokerVersionData as BrokerVersionData,
    )
    from pykclient.admin.descriptions import (
        ClusterDescription as ClusterDescription,
    )
    from pykclient.admin.descriptions import (
        ConfigEntry as ConfigEntry,
    )
    from pykclient.admin.descriptions import (
        ConfigSynonym as ConfigSynonym,
    )
    from pykclient.admin.descriptions import (
        CreatedTopic as CreatedTopic,
    )
    from pykclient.admin.descriptions import (
        FeatureMetadata as FeatureMetadata,
    )
    from pykclient.admin.descriptions import (
        GroupDescription as GroupDescription,
    )
    from pykclient.admin.descriptions import (
        GroupListing as GroupListing,
    )
    from pykclient.admin.descriptions import (
        ListedOffset as ListedOffset,
    )
    from pykclient.admin.descriptions import (
        LogDirDescription as LogDirDescription,
    )
    from pykclient.admin.descriptions import (
        MemberDescription as MemberDescription,
    )
    from pykclient.admin.descriptions import (
        PartitionDescription as PartitionDescription,
    )
    from pykclient.admin.descriptions import (
        PartitionReassignment as PartitionReassignment,
    )
    from pykclient.admin.descriptions import (
        QuorumInfo as QuorumInfo,
    )
    from pykclient.admin.descriptions import (
        QuorumReplica as QuorumReplica,
    )
    from pykclient.admin.descriptions import (
        ReplicaInfo as ReplicaInfo,
    )
    from pykclient.admin.descriptions import (
        ReplicaLogDirInfo as ReplicaLogDirInfo,
    )
    from pykclient.admin.descriptions import (
        ShareGroupOffset as ShareGroupOffset,
    )
    from pykclient.admin.descriptions import (
        TopicDescription as TopicDescription,
    )
    from pykclient.admin.descriptions import (
        TopicListing as TopicListing,
    )
    from pykclient.admin.kafka_admin_client import (
        KafkaAdminClient as KafkaAdminClient,
    )
    from pykclient.admin.results import (
        Results as Results,
    )
    from pykclient.admin.streams_groups import (
        Endpoint as Endpoint,
    )
    from pykclient.admin.streams_groups import (
        StreamsGroupDescription as StreamsGroupDescription,
    )
    from pykclient.admin.streams_groups import (
        StreamsGroupMemberAssignment as StreamsGroupMemberAssignment,
    )
    from pykclient.admin.streams_groups import (
        StreamsGroupMemberDescription as StreamsGroupMemberDescription,
    )
    from pykclient.admin.streams_groups import (
        StreamsGroupSubtopologyDescription as StreamsGroupSubtopologyDescription,
    )
    from pykclient.admin.streams_groups import (
        TaskIds as TaskIds,
    )
    from pykclient.admin.streams_groups import (
        TaskOffset as TaskOffset,
    )
    from pykclient.admin.streams_groups import (
        TopicInfo as TopicInfo,
    )
    from pykclient.admin.transactions import (
        FencedProducer as FencedProducer,
    )
    from pykclient.admin.values import (
        ACL as ACL,
    )
    from pykclient.admin.values import (
        AbortTransactionSpec as AbortTransactionSpec,
    )
    from pykclient.admin.values import (
        ACLFilter as ACLFilter,
    )
    from pykclient.admin.values import (
        ACLOperation as ACLOperation,
    )
    from pykclient.admin.values import (
        ACLPermissionType as ACLPermissionType,
    )
    from pykclient.admin.values import (
        ACLResourcePatternType as ACLResourcePatternType,
    )
    from pykclient.admin.values import (
        AlterConfigOp as AlterConfigOp,
    )
    from pykclient.admin.values import (
        ConfigFilterType as ConfigFilterType,
    )
    from pykclient.admin.values import (
        ConfigResource as ConfigResource,
    )
    from pykclient.admin.values import (
        ConfigResourceType as ConfigResourceType,
    )
    from pykclient.admin.values import (
        ConfigSourceType as ConfigSourceType,
    )
    from pykclient.admin.values import (
        ConfigType as ConfigType,
    )
    from pykclient.admin.values import (
        ElectionType as ElectionType,
    )
    from pykclient.admin.values import (
        GroupState as GroupState,
    )
    from pykclient.admin.values import (
        GroupType as GroupType,
    )
    from pykclient.admin.values import (
        IsolationLevel as IsolationLevel,
    )
    from pykclient.admin.values import (
        MemberToRemove as MemberToRemove,
    )
    from pykclient.admin.values import (
        NewPartitions as NewPartitions,
    )
    from pykclient.admin.values import (
        NewTopic as NewTopic,
    )
    from pykclient.admin.values import (
        OffsetSpec as OffsetSpec,
    )
    from pykclient.admin.values import (
        OffsetTimestamp as OffsetTimestamp,
    )
    from pykclient.admin.values import (
        PartitionProducerState as PartitionProducerState,
    )
    from pykclient.admin.values import (
        ProducerState as ProducerState,
    )
    from pykclient.admin.values import (
        ResourcePattern as ResourcePattern,
    )
    from pykclient.admin.values import (
        ResourcePatternFilter as ResourcePatternFilter,
    )
    from pykclient.admin.values import (
        ResourceType as ResourceType,
    )
    from pykclient.admin.values import (
        ScramMechanism as ScramMechanism,
    )
    from pykclient.admin.values import (
        TopicPartitionReplica as TopicPartitionReplica,
    )
    from pykclient.admin.values import (
        TransactionDescription as TransactionDescription,
    )
    from pykclient.admin.values import (
        TransactionListing as TransactionListing,
    )
    from pykclient.admin.values import (
        TransactionState as TransactionState,
    )
    from pykclient.admin.values import (
        UpdateFeatureType as UpdateFeatureType,
    )
    from pykclient.admin.values import (
        UserScramCredentialDeletion as UserScramCredentialDeletion,
    )
    from pykclient.admin.values import (
        UserScramCredentialUpsertion as UserScramCredentialUpsertion,
    )

_HOME = {
    "ACL": "values",
    "ACLFilter": "values",
    "ACLOperation": "values",
    "ACLPermissionType": "values",
    "ACLResourcePatternType": "values",
    "AbortTransactionSpec": "values",
    "Admin": "admin",
    "AlterConfigOp": "values",
    "BrokerVersionData": "descriptions",
    "ClientQuotaFilterComponent": "access",
    "ClusterDescription": "descriptions",
    "ConfigEntry": "descriptions",
    "ConfigFilterType": "values",
    "ConfigResource": "values",
    "ConfigResourceType": "values",
    "ConfigSourceType": "values",
    "ConfigSynonym": "descriptions",
    "ConfigType": "values",
    "CreatedTopic": "descriptions",
    "DelegationToken": "access",
    "ElectionType": "values",
    "Endpoint": "streams_groups",
    "FeatureMetadata": "descriptions",
    "FeatureUpdate": "cluster",
    "FencedProducer": "transactions",
    "GroupDescription": "descriptions",
    "GroupListing": "descriptions",
    "GroupState": "values",
    "GroupType": "values",
    "IsolationLevel": "values",
    "KafkaAdminClient": "kafka_admin_client",
    "ListedOffset": "descriptions",
    "LogDirDescription": "descriptions",
    "MemberDescription": "descriptions",
    "MemberToRemove": "values",
    "NewPartitions": "values",
    "NewTopic": "values",
    "OffsetSpec": "values",
    "OffsetTimestamp": "values",
    "PartitionDescription": "descriptions",
    "PartitionProducerState": "values",
    "PartitionReassignment": "descriptions",
    "ProducerState": "values",
    "QuorumInfo": "descriptions",
    "QuorumReplica": "descriptions",
    "ReplicaInfo": "descriptions",
    "ReplicaLogDirInfo": "descriptions",
    "ResourcePattern": "values",
    "ResourcePatternFilter": "values",
    "ResourceType": "values",
    "Results": "results",
    "ScramCredentialInfo": "access",
    "ScramMechanism": "values",
    "ShareGroupOffset": "descriptions",
    "StreamsGroupDescription": "streams_groups",
    "StreamsGroupMemberAssignment": "streams_groups",
    "StreamsGroupMemberDescription": "streams_groups",
    "StreamsGroupSubtopologyDescription": "streams_groups",
    "TaskIds": "streams_groups",
    "TaskOffset": "streams_groups",
    "TopicDescription": "descriptions",
    "TopicInfo": "streams_groups",
    "TopicListing": "descriptions",
    "TopicPartitionReplica": "values",
    "TransactionDescription": "values",
    "TransactionListing": "values",
    "TransactionState": "values",
    "UpdateFeatureType": "values",
    "UserScramCredentialDeletion": "values",
    "UserScramCredentialUpsertion": "values",
}

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "Admin",
    "AlterConfigOp",
    "BrokerVersionData",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "Endpoint",
    "FeatureMetadata",
    "FeatureUpdate",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "IsolationLevel",
    "KafkaAdminClient",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionDescription",
    "PartitionProducerState",
    "PartitionReassignment",
    "ProducerState",
    "QuorumInfo",
    "QuorumReplica",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareGroupOffset",
    "StreamsGroupDescription",
    "StreamsGroupMemberAssignment",
    "StreamsGroupMemberDescription",
    "StreamsGroupSubtopologyDescription",
    "TaskIds",
    "TaskOffset",
    "TopicDescription",
    "TopicInfo",
    "TopicListing",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
