"""Requests that wait for their node to be ready (Java: ConsumerNetworkClient.UnsentRequests)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pykclient.network.client_request import ClientRequest
from pykclient.types import Node

Unsent = tuple[ClientRequest, Callable[[Exception], None]]


class UnsentRequests:
    """A queue of requests per node, in the order of arrival. Thread: any.

    Each request is stored with the function to call if it is never sent.
    """

    __slots__ = ("_lock", "_queues")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: _queues
        self._queues: dict[Node, deque[Unsent]] = {}

    def put(self, node: Node, request: ClientRequest, fail: Callable[[Exception], None]) -> None:
        with self._lock:
            queue = self._queues.get(node)
            if queue is None:
                queue = self._queues[node] = deque()
            queue.append((request, fail))

    def nodes(self) -> list[Node]:
        """Return the nodes with waiting requests."""
        if not self._queues:
            return []
        with self._lock:
            return [node for node, queue in self._queues.items() if queue]

    def pop(self, node: Node) -> ClientRequest | None:
        """Remove and return the next request for ``node``, or None."""
        with self._lock:
            queue = self._queues.get(node)
            return queue.popleft()[0] if queue else None

    def remove(self, node: Node) -> list[Unsent]:
        """Remove and return all requests for ``node``."""
        with self._lock:
            return list(self._queues.pop(node, ()))

    def remove_expired(self, now_ms: int) -> list[Unsent]:
        """Remove and return the requests whose timeout has expired while they waited."""
        if not self._queues:
            return []
        expired: list[Unsent] = []
        with self._lock:
            for queue in self._queues.values():
                while queue and now_ms - queue[0][0].created_ms > queue[0][0].request_timeout_ms:
                    expired.append(queue.popleft())
        return expired

    @property
    def is_empty(self) -> bool:
        if not self._queues:
            return True
        with self._lock:
            return not any(self._queues.values())

    def request_count(self, node: Node | None = None) -> int:
        """Return the number of requests waiting for ``node``, or for all nodes."""
        if not self._queues:
            return 0
        with self._lock:
            if node is not None:
                return len(self._queues.get(node, ()))
            return sum(map(len, self._queues.values()))

    def clear(self) -> None:
        """Remove all requests, without calling any callbacks."""
        with self._lock:
            self._queues = {}

    def clean(self) -> None:
        """Remove nodes without waiting requests."""
        if self._queues:
            with self._lock:
                self._queues = {node: queue for node, queue in self._queues.items() if queue}
