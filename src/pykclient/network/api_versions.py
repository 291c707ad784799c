"""The versions of all connected nodes (Java: ApiVersions)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pykclient.network.node_api_versions import NodeApiVersions

_PRODUCE = 0
#: Record batch format by the oldest Produce version that carries it (Java: RecordBatch.MAGIC_VALUE_*).
_MAGIC_V2, _MAGIC_V1, _MAGIC_V0 = 2, 1, 0


class FinalizedFeaturesInfo(NamedTuple):
    """The finalized features of the cluster, as of the newest epoch that any node reported."""

    finalized_features_epoch: int
    finalized_features: Mapping[str, int]


class ApiVersions:
    """The API versions of each connected node, shared by the network client and request builders. Thread: any."""

    __slots__ = ("_finalized_features", "_finalized_features_epoch", "_lock", "_nodes", "get")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: all below, but single lookups in _nodes
        self._nodes: dict[str, NodeApiVersions] = {}
        #: Returns the versions of a node by its id, or None. Each request asks for them, so no Python code runs.
        self.get: Callable[[str], NodeApiVersions | None] = self._nodes.get
        self._finalized_features_epoch = -1
        self._finalized_features: Mapping[str, int] = {}

    def update(self, node_id: str, versions: NodeApiVersions) -> None:
        with self._lock:
            self._nodes[node_id] = versions
            if versions.finalized_features_epoch > self._finalized_features_epoch:
                self._finalized_features_epoch = versions.finalized_features_epoch
                self._finalized_features = versions.finalized_features

    def remove(self, node_id: str) -> None:
        with self._lock:
            self._nodes.pop(node_id, None)

    @property
    def finalized_features_epoch(self) -> int:
        """The epoch of the newest finalized features; -1 as long as no broker has told any."""
        return self._finalized_features_epoch

    @property
    def finalized_features_info(self) -> FinalizedFeaturesInfo:
        with self._lock:
            return FinalizedFeaturesInfo(self._finalized_features_epoch, self._finalized_features)

    @property
    def max_usable_produce_magic(self) -> int:
        """Return the newest batch format that every connected node accepts: 2 from Produce v3 on, 1 from v2, else 0."""
        with self._lock:
            magic = _MAGIC_V2
            for versions in self._nodes.values():
                produce = versions.api_version(_PRODUCE)
                if produce is not None:
                    latest = produce.max_version
                    magic = min(magic, _MAGIC_V2 if latest >= 3 else _MAGIC_V1 if latest == 2 else _MAGIC_V0)
            return magic
