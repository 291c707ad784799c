"""Schema registries: a client for threads and one for asyncio, and serializers for Avro, JSON Schema and Protobuf.

    from pykclient.schema_registry import SchemaRegistryClient
    from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer

The names are confluent-kafka's. See docs/schemas.md. Names are loaded when they are first used.

- ``schema_registry_client``, ``rest``, ``schemas``: the clients, their HTTP, and the values of the REST API
- ``serde``, ``wire``, ``rules``: what serializers of all formats have in common
- ``avro``, ``json_schema``, ``protobuf``, ``models``: the serializers of each format, and those of models
- ``avro_types``, ``avro_nodes``, ``avro_decoder``, ``columns``: Avro into columns
- ``object_columns``, ``object_encoder``: JSON and Protobuf into columns, and back
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.schema_registry.column_encoder import avro_encoder as avro_encoder
    from pykclient.schema_registry.columns import avro_columns as avro_columns
    from pykclient.schema_registry.models import DecimalSize as DecimalSize
    from pykclient.schema_registry.object_columns import (
        json_columns as json_columns,
        protobuf_columns as protobuf_columns,
    )
    from pykclient.schema_registry.object_encoder import (
        json_encoder as json_encoder,
        protobuf_encoder as protobuf_encoder,
    )
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
    from pykclient.schema_registry.serde import (
        AssociatedNameStrategy as AssociatedNameStrategy,
        SubjectNameStrategyType as SubjectNameStrategyType,
        record_subject_name_strategy as record_subject_name_strategy,
        reference_subject_name_strategy as reference_subject_name_strategy,
        topic_record_subject_name_strategy as topic_record_subject_name_strategy,
        topic_subject_name_strategy as topic_subject_name_strategy,
    )
    from pykclient.schema_registry.wire import (
        dual_schema_id_deserializer as dual_schema_id_deserializer,
        header_schema_id_serializer as header_schema_id_serializer,
        prefix_schema_guid_serializer as prefix_schema_guid_serializer,
        prefix_schema_id_deserializer as prefix_schema_id_deserializer,
        prefix_schema_id_serializer as prefix_schema_id_serializer,
    )
    from pykclient.serialization import MessageField as MessageField, SerializationContext as SerializationContext

#: Public names, by the modules that they live in.
_NAMES = {
    "pykclient.schema_registry.column_encoder": "avro_encoder",
    "pykclient.schema_registry.columns": "avro_columns",
    "pykclient.schema_registry.models": "DecimalSize",
    "pykclient.schema_registry.object_columns": "json_columns protobuf_columns",
    "pykclient.schema_registry.object_encoder": "json_encoder protobuf_encoder",
    "pykclient.schema_registry.schema_registry_client": "AsyncSchemaRegistryClient SchemaRegistryClient",
    "pykclient.schema_registry.schemas": "Association AssociationCreateOrUpdateInfo AssociationCreateOrUpdateRequest "
    "AssociationInfo AssociationResponse ConfigCompatibilityLevel Metadata MetadataProperties MetadataTags Rule "
    "RegisteredSchema RuleKind RuleMode RuleParams RuleSet Schema SchemaReference SchemaRegistryError ServerConfig",
    "pykclient.schema_registry.serde": "AssociatedNameStrategy SubjectNameStrategyType record_subject_name_strategy "
    "reference_subject_name_strategy topic_record_subject_name_strategy topic_subject_name_strategy",
    "pykclient.schema_registry.wire": "dual_schema_id_deserializer header_schema_id_serializer "
    "prefix_schema_guid_serializer prefix_schema_id_deserializer prefix_schema_id_serializer",
    "pykclient.serialization": "MessageField SerializationContext",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # otherwise type checkers would accept any name, and import none by a star
    __all__ = sorted(_HOME)  # noqa: PLE0605

    def __getattr__(name):
        import importlib

        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
