"""The brokers and the controller of the cluster (Java: AdminMetadataManager)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pykclient.network.metadata import Metadata
from pykclient.network.metadata_request import MetadataRequestBuilder

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.network.cluster import ClusterResourceListeners


class AdminMetadata(Metadata):
    """Metadata without topics: the nodes of the cluster, and which of them is the controller. Thread: any."""

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

    def new_metadata_request_builder(self) -> MetadataRequestBuilder:
        return MetadataRequestBuilder.for_topic_names((), True)  # no topic is created; older versions cannot say so
