"""Fetching through the consumer's network client (Java: Fetcher)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.abstract_fetch import AbstractFetch
from pykclient.consumer.fetch import Fetch
from pykclient.consumer.fetch_buffer import FetchBuffer
from pykclient.consumer.fetch_collector import FetchCollector
from pykclient.types import ConsumerRecord as ConsumerRecord  # programs written for kafka-python import it from here

if TYPE_CHECKING:
    from pykclient.clock import Timer
    from pykclient.consumer.deserializers import Deserializers
    from pykclient.consumer.fetch import ColumnsFetch
    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.consumer.fetch_metrics import FetchMetricsManager
    from pykclient.consumer.fetch_parts import FetchParts
    from pykclient.consumer.fetch_session_handler import FetchRequestData
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.network.client_request import ClientResponse
    from pykclient.types import Node, TopicPartition


class Fetcher(AbstractFetch):
    """Sends fetches and returns the fetched records.

    ``poll`` sends the next fetches before it returns records, which keeps the brokers busy while the application works.

    Thread: application.
    """

    def __init__(
        self,
        parts: FetchParts,
        fetch_config: FetchConfig,
        deserializers: Deserializers,
        metrics_manager: FetchMetricsManager,
    ) -> None:
        super().__init__(parts, fetch_config, FetchBuffer(parts.log_context), metrics_manager)
        self._client = parts.client
        self._closed = False
        self._collector = FetchCollector(parts, fetch_config, deserializers, metrics_manager)

    def is_unavailable(self, node: Node) -> bool:
        return self._client.is_unavailable(node)

    def maybe_throw_auth_failure(self, node: Node) -> None:
        self._client.maybe_throw_auth_failure(node)

    def clear_buffered_data_for_unassigned_partitions(self, assigned: Collection[TopicPartition]) -> None:
        self._fetch_buffer.retain_all(frozenset(assigned))

    def send_fetches(self) -> int:
        """Queue a fetch for each available node with partitions to fetch, and return the number of fetches."""
        requests = self.prepare_fetch_requests()
        if requests:
            self._send(
                requests,
                self.handle_fetch_success,
                lambda node, _data, error: self.handle_fetch_failure(node, error),
            )
        return len(requests)

    def collect_fetch(self, max_records: int | None = None, fetch: Fetch | None = None) -> Fetch:
        """Move up to ``max_records`` buffered records (``max.poll.records``) into ``fetch``, or into a new one.

        Raises:
            UnsupportedVersionError: a node is too old to fetch from. No records were taken.
        """
        self.raise_unsupported()
        return self._collector.collect_fetch(self._fetch_buffer, Fetch() if fetch is None else fetch, max_records)

    def collect_columns(self, fetch: ColumnsFetch, max_rows: int) -> ColumnsFetch:
        """Move up to ``max_rows`` buffered records into the columns of ``fetch``."""
        return self._collector.collect_columns(self._fetch_buffer, fetch, max_rows)

    def close(self, timer: Timer) -> None:
        """End the sessions, as far as the timer allows, and drop buffered data. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._client.disable_wakeups()
        futures = self._send(
            self.prepare_close_fetch_session_requests(),
            lambda node, data, _response: self.handle_close_fetch_session_success(node, data),
            self.handle_close_fetch_session_failure,
        )
        while timer.not_expired and not all(future.is_done for future in futures):
            self._client.poll(timer, None, True)
            timer.update()
        if not all(future.is_done for future in futures):
            self._log.debug("Not all fetch sessions were closed within %d ms; brokers expire them", timer.timeout_ms)
        self.close_buffer()

    def _send(
        self,
        requests: dict[Node, FetchRequestData],
        on_success: Callable[[Node, FetchRequestData, ClientResponse], None],
        on_failure: Callable[[Node, FetchRequestData, Exception], None],
    ) -> list[RequestFuture[ClientResponse]]:
        futures = []
        for node, data in requests.items():
            future = self._client.send(node, self.create_fetch_request(node, data))
            future.add_listener(
                partial(on_success, node, data),
                partial(on_failure, node, data),
            )
            futures.append(future)
        return futures
