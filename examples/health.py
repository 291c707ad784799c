"""A health check for a service with a consumer: an HTTP server for Kubernetes' probes and for Prometheus.

- ``/live`` fails if the consumer has not polled for longer than ``max.poll.interval.ms``: a restart helps then. It does
  not depend on brokers, because a restart of the service does not bring a broker back.
- ``/ready`` fails until the consumer has partitions.
- ``/metrics`` has the metrics of all clients of the process, if ``prometheus_client`` is installed.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pykclient import KafkaConsumer


class HealthServer:
    """Serves the health of one consumer until ``close`` is called.

    Thread: any; metrics may be read while another thread uses the consumer.
    """

    def __init__(self, consumer: KafkaConsumer[Any, Any], port: int = 8080) -> None:
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = health.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: a probe comes every few seconds."""

        self._consumer = consumer
        self._max_poll_interval_s = consumer.config["max.poll.interval.ms"] / 1000
        self._server = ThreadingHTTPServer(("", port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def is_live(self) -> bool:
        """Return whether the consumer has polled recently enough. True before the first poll."""
        seconds = self._metric("consumer-metrics", "last-poll-seconds-ago")
        return not seconds > self._max_poll_interval_s

    def is_ready(self) -> bool:
        """Return whether the group has assigned partitions to the consumer."""
        return self._metric("consumer-coordinator-metrics", "assigned-partitions") > 0

    def _metric(self, group: str, name: str) -> float:
        """Return a metric's value; NaN, which is neither above nor below any bound, if there is none yet."""
        return float(self._consumer.metrics().get(group, {}).get(name, "nan"))

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return the status, the content type and the body of the response for ``path``."""
        if path == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

            from pykclient.exporters.prometheus import KafkaCollector

            registry = CollectorRegistry()
            registry.register(KafkaCollector())
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        checks = {"/live": self.is_live, "/ready": self.is_ready}
        if path not in checks:
            return 404, "text/plain", b"not found\n"
        return (200, "text/plain", b"ok\n") if checks[path]() else (503, "text/plain", b"failing\n")

    def close(self) -> None:
        """Stop the server and wait for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
