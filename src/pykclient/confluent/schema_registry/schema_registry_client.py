"""The clients of a registry, and their values."""

from __future__ import annotations

from pykclient.schema_registry.schema_registry_client import (
    AsyncSchemaRegistryClient as AsyncSchemaRegistryClient,
    SchemaRegistryClient as SchemaRegistryClient,
)
from pykclient.schema_registry.schemas import (
    Association as Association,
    AssociationCreateOrUpdateInfo as AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest as AssociationCreateOrUpdateRequest,
    AssociationInfo as AssociationInfo,
    AssociationResponse as AssociationResponse,
    ConfigCompatibilityLevel as ConfigCompatibilityLevel,
    Metadata as Metadata,
    MetadataProperties as MetadataProperties,
    MetadataTags as MetadataTags,
    RegisteredSchema as RegisteredSchema,
    Rule as Rule,
    RuleKind as RuleKind,
    RuleMode as RuleMode,
    RuleParams as RuleParams,
    RuleSet as RuleSet,
    Schema as Schema,
    SchemaReference as SchemaReference,
    SchemaRegistryError as SchemaRegistryError,
    ServerConfig as ServerConfig,
)
