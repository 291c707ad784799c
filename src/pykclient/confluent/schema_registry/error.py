"""The errors of a registry."""

from __future__ import annotations

from pykclient.schema_registry.schemas import (
    OAuthTokenError as OAuthTokenError,
    SchemaRegistryError as SchemaRegistryError,
)
