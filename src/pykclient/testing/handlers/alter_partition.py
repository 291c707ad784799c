"""AlterPartition: a leader asks the controller to change its in-sync replicas (KIP-497)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ALTER_PARTITION
VERSIONS = AlterPartitionRequest.VERSIONS
BROKER_ONLY = True


def handle(broker: Broker, request: Request) -> None:
    """Respond once the new state is stored or rejected."""
    body = cast(AlterPartitionRequest, request.body)
    broker.controller.alter_partition_handler.alter_partitions(body, request.api_version, request.respond)


def error_response(body: AlterPartitionRequest, code: int, message: str | None = None) -> AlterPartitionResponse:  # noqa: ARG001
    return AlterPartitionResponse(error_code=code)
