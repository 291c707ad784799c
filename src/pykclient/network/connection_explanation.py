"""Text about connections and metadata, for ``explain``. It only reads, so any thread may ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.explanation import counted, shown_duration
from pykclient.network.connection_failures import shown_address, shown_node
from pykclient.protocol.api_keys import ApiKeys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.network.cluster import Cluster
    from pykclient.network.cluster_connection_states import ClusterConnectionStates
    from pykclient.network.connection_failures import ConnectionFailures
    from pykclient.network.in_flight_requests import InFlightRequests
    from pykclient.types import Node

#: The most brokers that are listed.
_MOST_BROKERS = 50
#: Older than any metadata of a client.
_NEVER_MS = 1 << 61


def explain_connections(
    nodes: Mapping[str, Node],
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
    failures: ConnectionFailures,
    now_ms: int,
) -> list[str]:
    """Return a line for each node: the state of its connection, its requests in flight, and its last failure."""
    lines: list[str] = []
    for id, node in list(nodes.items())[:_MOST_BROKERS]:
        line = f"{shown_node(node)}: {states.explain(id, now_ms)}"
        requests = in_flight.of_node(id)
        if requests:
            oldest = requests[0]
            name = ApiKeys.name_of(oldest.request.api_key)
            since = shown_duration(now_ms - oldest.send_ms)
            line += f"; {counted(len(requests), 'request')} in flight, the oldest ({name}) for {since}"
        failure = failures.of_node(node)
        if failure is not None:
            line += f"; failing for {shown_duration(now_ms - failure.since_ms)}: {failure.reason}"
        lines.append(line)
    if len(nodes) > _MOST_BROKERS:
        lines.append(f"and {len(nodes) - _MOST_BROKERS} more")
    return lines or ["none: no connection has been needed yet"]


def explain_metadata(
    cluster: Cluster, bootstrap: Sequence[tuple[str, int]], age_ms: int, *, is_update_requested: bool
) -> str:
    """Return a line about the age and content of the metadata."""
    wanted = "; an update is requested" if is_update_requested else ""
    if cluster.is_bootstrap_configured or age_ms > _NEVER_MS:
        servers = ", ".join(shown_address(host, port) for host, port in bootstrap)
        return f"none received; the bootstrap servers are {servers or 'unknown'}{wanted}"
    leaderless = sum(
        partition.leader is None for topic in cluster.topics for partition in cluster.partitions_for_topic(topic)
    )
    return (
        f"{counted(len(cluster.nodes), 'broker')}, {counted(len(cluster.topics), 'topic')}, "
        f"{counted(leaderless, 'partition')} without a leader, {shown_duration(age_ms)} old{wanted}"
    )
