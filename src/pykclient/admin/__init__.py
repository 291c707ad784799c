"""The admin client. Names are loaded on first use."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pykclient.admin.admin import Admin as Admin
    from pykclient.admin.kafka_admin_client import KafkaAdminClient as KafkaAdminClient
    from pykclient.admin.results import Results as Results
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
    "ConfigFilterType": "values",
    "ConfigResource": "values",
    "ConfigResourceType": "values",
    "ConfigSourceType": "values",
    "ConfigType": "values",
    "ElectionType": "values",
    "GroupState": "values",
    "GroupType": "values",
    "IsolationLevel": "values",
    "KafkaAdminClient": "kafka_admin_client",
    "MemberToRemove": "values",
    "NewPartitions": "values",
    "NewTopic": "values",
    "OffsetSpec": "values",
    "OffsetTimestamp": "values",
    "PartitionProducerState": "values",
    "ProducerState": "values",
    "ResourcePattern": "values",
    "ResourcePatternFilter": "values",
    "ResourceType": "values",
    "Results": "results",
    "ScramMechanism": "values",
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
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "ElectionType",
    "GroupState",
    "GroupType",
    "IsolationLevel",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "Results",
    "ScramMechanism",
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
