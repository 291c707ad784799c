"""``pykclient.schema_registry`` under confluent-kafka's name, with the same lazy names.

- ``schema_registry_client``, ``avro``, ``json_schema``, ``protobuf``, ``error``: modules that programs import from it

The serializers register schemas by default, as confluent-kafka's do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.schema_registry import *  # noqa: F403
else:
    from pykclient import schema_registry as _registry

    __all__ = _registry.__all__

    def __getattr__(name):
        return getattr(_registry, name)

    def __dir__():
        return dir(_registry)
