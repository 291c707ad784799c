"""The choice of a node for requests that any node can serve (Java: NetworkClient.leastLoadedNode)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykclient.clock import FOREVER_MS
from pykclient.network.kafka_client import LeastLoadedNode

if TYPE_CHECKING:
    from pykclient.network.cluster_connection_states import ClusterConnectionStates
    from pykclient.network.in_flight_requests import InFlightRequests
    from pykclient.network.selectable import Selectable
    from pykclient.types import Node


def choose(
    nodes: Sequence[Node],
    states: ClusterConnectionStates,
    selector: Selectable,
    in_flight: InFlightRequests,
    now_ms: int,
) -> LeastLoadedNode:
    """Return the connected node with the fewest requests in flight, or the best one to wait for.

    Of equal nodes, return the first. If no connected node can take a request, return one that is connecting. If there
    is none, return the node whose last connection attempt is oldest, among those that may be connected to now. As a
    last resort, return a node whose host lookup is slow.
    """
    least = FOREVER_MS
    ready: Node | None = None
    connecting: Node | None = None
    connectable: Node | None = None
    slow: Node | None = None
    any_ready = False
    for node in nodes:
        id = node.id_string
        is_ready = states.is_ready(id, now_ms) and selector.is_channel_ready(id)
        any_ready = any_ready or is_ready
        if is_ready and in_flight.can_send_more(id):
            count = in_flight.count(id)
            if not count:
                return LeastLoadedNode(node, True)
            if count < least:
                least, ready = count, node
        elif states.is_lookup_slow(id, now_ms):
            slow = node
        elif states.is_preparing_connection(id):
            connecting = node
        elif states.can_connect(id, now_ms) and (
            connectable is None
            or states.last_connect_attempt_ms(connectable.id_string) > states.last_connect_attempt_ms(id)
        ):
            connectable = node
    return LeastLoadedNode(ready or connecting or connectable or slow, any_ready)
