"""A Kafka cluster inside the process, for tests and for development.

    from pykclient.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

See docs/testing.md. Names are loaded when they are first used, as pytest finds its plugin in this package
and loads it in every session.

- ``embedded_cluster``, ``plugin``, ``faults``: the public class, fixtures, faults
- ``cluster``, ``broker``, ``config``, ``event_loop``, ``memory_network``: brokers, and what they run on
- ``broker_context``: what each part of a broker gets, beside the other parts that it uses
- ``server``, ``request_channel``, ``handlers``: connections, requests, and the function that serves each API
- ``controller``, ``coordination``, ``replica``, ``log``: topics, elections, replication and storage
- ``group``, ``share``, ``transaction``: coordinators of groups, share groups and transactions
- ``simulation``: clients and brokers on virtual time
- ``schema_registry``, ``certificates``, ``telemetry``: a registry, certificates, and what receives clients' metrics
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs more to import than all of this module
if TYPE_CHECKING:
    from typing import Any

    from pykclient.testing.acls import Acl
    from pykclient.testing.embedded_cluster import EmbeddedCluster
    from pykclient.testing.faults import DISCONNECT, DISCONNECT_AFTER, DROP_REQUEST, DROP_RESPONSE, HOLD
    from pykclient.testing.request_channel import RequestRecord
    from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
    from pykclient.testing.security import Security

#: Public names and the modules that they live in.
_HOME = {
    "Acl": "acls",
    "DISCONNECT": "faults",
    "DISCONNECT_AFTER": "faults",
    "DROP_REQUEST": "faults",
    "DROP_RESPONSE": "faults",
    "EmbeddedCluster": "embedded_cluster",
    "EmbeddedSchemaRegistry": "schema_registry",
    "HOLD": "faults",
    "RequestRecord": "request_channel",
    "Security": "security",
}

__all__ = [
    "Acl",
    "DISCONNECT",
    "DISCONNECT_AFTER",
    "DROP_REQUEST",
    "DROP_RESPONSE",
    "EmbeddedCluster",
    "EmbeddedSchemaRegistry",
    "HOLD",
    "RequestRecord",
    "Security",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
