"""The brokers and the controller of the cluster (Java: AdminMetadataManager)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pykclient import errors
from pykclient.network.client_request import RequestBuilder
from pykclient.network.metadata import Metadata, MetadataRequestBuilder
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.network.cluster import ClusterResourceListeners
    from pykclient.protocol.message import Response

#: The type of endpoint in a DescribeCluster request for controllers, and its first version with such types.
CONTROLLER_ENDPOINTS: Final = 2
ENDPOINT_TYPES_FROM: Final = 1


class _DescribeControllersBuilder(RequestBuilder):
    """Asks a controller for the controllers of the quorum (KIP-919)."""

    __slots__ = ()

    def __init__(self) -> None:
        request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
        super().__init__(request, min_version=ENDPOINT_TYPES_FROM)


class AdminMetadata(Metadata):
    """Metadata without topics: the nodes of the cluster, and which of them is the controller.

    If ``bootstrap.controllers`` is set, the nodes are the controllers of the quorum, and the controller is the active
    one. Thread: any.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        log_context: LogContext,
        cluster_resource_listeners: ClusterResourceListeners | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            config["retry.backoff.ms"],
            config["retry.backoff.max.ms"],
            config["metadata.max.age.ms"],
            log_context,
            cluster_resource_listeners,
            rng,
        )
        #: True if the client is connected to controllers instead of brokers (KIP-919).
        self.uses_controllers = bool(config["bootstrap.controllers"])

    def new_metadata_request_builder(self) -> RequestBuilder:
        if self.uses_controllers:
            return _DescribeControllersBuilder()
        return MetadataRequestBuilder.for_topic_names((), True)  # no topic is created; older versions cannot say so

    def read_response(self, response: Response) -> MetadataResponse:
        if not isinstance(response, DescribeClusterResponse):
            return super().read_response(response)
        error = errors.for_code(response.error_code, response.error_message)
        if isinstance(error, errors.MismatchedEndpointTypeError):
            raise errors.MismatchedEndpointTypeError(
                "an address of bootstrap.controllers is a broker's. Name the listeners of the controllers "
                "(controller.listener.names), or set bootstrap.servers to connect to brokers"
            )
        if error is not None:
            raise error
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
                )
                for node in response.brokers
            ],
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
        )
