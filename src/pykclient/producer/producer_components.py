"""The wiring of a producer: creates its components from the configuration."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from pykclient.errors import BufferExhaustedError
from pykclient.log_context import LogContext
from pykclient.metrics import Avg, Max, MetricConfig, Metrics, register_app_info
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import principal_of
from pykclient.network.metadata import ClusterResourceListeners
from pykclient.producer.batch_register import AccumulatorConfig
from pykclient.producer.buffer_pool import BufferPool, BufferPoolMetrics, RowBacklog, register_buffer_pool_gauges
from pykclient.producer.interceptors import ProducerInterceptor, ProducerInterceptors
from pykclient.producer.partitioner import Partitioner, resolve_partitioner
from pykclient.producer.produce_requests import SenderMetrics
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.producer.producer_metrics import GROUP, KafkaProducerMetrics
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.sender import Sender, SenderConfig
from pykclient.producer.sender_thread import SenderThread
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
from pykclient.record import Compression, CompressionType
from pykclient.serialization import Serializer, serializer_for

if TYPE_CHECKING:
    from random import Random

    from pykclient.config.producer_config import ProducerConfig
    from pykclient.metrics import Sensor
    from pykclient.network.kafka_client import KafkaClient
    from pykclient.producer.transactions.transaction_manager import TransactionManager

_client_numbers = count(1)

#: The part of max.request.size that a batch of send_batch leaves to the rest of the request.
_REQUEST_OVERHEAD = 1024
#: The number of the largest batches of send_batch for which there is memory.
_ROWS_BATCHES_IN_MEMORY = 16


#: Brokers without this version of the produce request do not support zstd (KIP-110).
_FIRST_VERSION_WITH_ZSTD = 7


class ProducerComponents:
    """The components of a KafkaProducer.

    Tests may pass ``client`` and ``metadata``. Creating the components starts no thread.
    """

    def __init__(
        self,
        config: ProducerConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        client: KafkaClient | None = None,
        metadata: ProducerMetadata | None = None,
    ) -> None:
        self.environment = environment
        self.clock = clock = environment.clock
        rng = environment.new_rng()
        transactional_id: str | None = config["transactional.id"]
        self.client_id: str = config["client.id"] or f"producer-{transactional_id or next(_client_numbers)}"
        of_transactions = f", transactional_id={transactional_id}" if transactional_id else ""
        self.log_context = LogContext(f"[Producer client_id={self.client_id}{of_transactions}] ", principal_of(config))
        # Check the likeliest mistakes first, while there is nothing to clean up.
        addresses = (
            []
            if metadata is not None
            else parse_and_validate_addresses(
                config["bootstrap.servers"],
                config["client.dns.lookup"],
                resolver_for(config, environment.host_resolver),
                self.log_context,
                clock,
            )
        )
        self.key_serializer: Serializer[Any] = _serializer(config, "key.serializer")
        self.value_serializer: Serializer[Any] = _serializer(config, "value.serializer")
        self.partitioner: Partitioner | None = resolve_partitioner(config["partitioner.class"], rng)
        if self.partitioner is not None and hasattr(self.partitioner, "configure"):
            self.partitioner.configure(dict(config))
        interceptors = config.configured_instances("interceptor.classes", ProducerInterceptor)
        self.interceptors = ProducerInterceptors(interceptors, self.log_context) if interceptors else None
        self.compression = _compression(config)
        self.metrics = Metrics(
            MetricConfig.of(config, self.client_id, config.metrics_context("kafka.producer")),
            config.configured_instances("metric.reporters", method="init"),
            clock,
        )
        try:
            self._put_together(config, addresses, rng, client, metadata)
        except BaseException:
            # No caller ever gets this object, so nothing else could close them.
            self.metrics.close()
            if self.interceptors is not None:
                self.interceptors.close()
            raise

    def _put_together(
        self,
        config: ProducerConfig,
        addresses: list[tuple[str, int]],
        rng: Random,
        client: KafkaClient | None,
        metadata: ProducerMetadata | None,
    ) -> None:
        environment, clock = self.environment, self.clock
        self.producer_metrics = KafkaProducerMetrics(self.metrics, clock)
        register_app_info(self.metrics)
        self.metadata = metadata or self._metadata(config, addresses, rng)
        api_versions = ApiVersions()
        self.client = client or create_network_client(
            config,
            self.client_id,
            self.metrics,
            "producer",
            self.log_context,
            api_versions,
            self.metadata,
            config["max.in.flight.requests.per.connection"],
            throttle_time_sensor=_throttle_time_sensor(self.metrics),
            environment=environment,
            rng=rng,
        )
        #: True if threads of the application may drive the sender: neither a step nor a poll runs code of it.
        self.may_lend = not self.metrics.reporters and not any(
            hasattr(serializer, "on_update") for serializer in (self.key_serializer, self.value_serializer)
        )
        self.sender_thread = SenderThread(environment.get_ident, environment.killed_by, self.client.wakeup)
        #: The transactions of a producer with a transactional.id.
        self.transactions: TransactionManager | None = None
        self.id_manager: ProducerIdManager | None = None
        if config["transactional.id"] is not None:
            self.transactions = self._transactional_manager(config, api_versions, rng)
            self.id_manager = self.transactions
        elif config["enable.idempotence"]:
            self.id_manager = ProducerIdManager(self.log_context, config["retry.backoff.ms"])
        self.accumulator = self._accumulator(config, rng)
        self.sender_metrics = SenderMetrics(self.metrics, self.metadata, self.client, clock)
        self.sender = Sender(
            SenderConfig(
                acks=int(config["acks"]),
                retries=config["retries"],
                max_request_size=config["max.request.size"],
                request_timeout_ms=config["request.timeout.ms"],
                retry_backoff_ms=config["retry.backoff.ms"],
                min_produce_version=_FIRST_VERSION_WITH_ZSTD if config["compression.type"] == "zstd" else None,
            ),
            self.client,
            self.metadata,
            self.accumulator,
            self.sender_metrics,
            clock,
            self.log_context,
            self.id_manager,
        )

    def _transactional_manager(
        self, config: ProducerConfig, api_versions: ApiVersions, rng: Random
    ) -> TransactionManager:
        from pykclient.producer.transactions.transaction_manager import TransactionManager
        from pykclient.producer.transactions.transactional_calls import CALLS, TransactionalSettings

        self.producer_metrics.measure_transactions(CALLS)
        backoff_ms: int = config["retry.backoff.ms"]
        return TransactionManager(
            self.log_context,
            TransactionalSettings(
                config["transactional.id"],
                config["transaction.timeout.ms"],
                backoff_ms,
                config["transaction.two.phase.commit.enable"],
            ),
            api_versions,
            ExponentialBackoff(backoff_ms, config["retry.backoff.max.ms"], rng),
            self.clock,
            self.sender_thread,
        )

    def _max_rows_batch_size(self, config: ProducerConfig) -> int:
        """Return the maximum size in bytes of a batch of ``send_batch``; ``batch.size`` is the minimum of that.

        It is what a request may hold, but not so much that few batches take all memory. With a codec it is
        ``batch.size``: a batch's size is then estimated, and one over the broker's limit must be split and sent again.
        """
        if config["batch.size"] == 0 or self.compression.type is not CompressionType.NONE:
            return 0
        of_request: int = config["max.request.size"] - _REQUEST_OVERHEAD
        of_memory: int = config["buffer.memory"] // _ROWS_BATCHES_IN_MEMORY
        return min(of_request, of_memory)

    def _accumulator(self, config: ProducerConfig, rng: Random) -> RecordAccumulator:
        # batch.size=0 disables batching: every batch is full with its first record.
        batch_size = max(1, config["batch.size"])
        metrics = BufferPoolMetrics(self.metrics, self.clock)
        max_rows_batch_size = self._max_rows_batch_size(config)
        pool = BufferPool(
            config["buffer.memory"], batch_size, self.clock, metrics, self._before_wait_for_memory, max_rows_batch_size
        )
        self.buffer_pool = pool
        register_buffer_pool_gauges(self.metrics, pool)
        return RecordAccumulator(
            AccumulatorConfig(
                batch_size=batch_size,
                compression=self.compression,
                linger_ms=config["linger.ms"],
                retry_backoff_ms=config["retry.backoff.ms"],
                retry_backoff_max_ms=config["retry.backoff.max.ms"],
                delivery_timeout_ms=config["delivery.timeout.ms"],
                enable_adaptive_partitioning=(
                    self.partitioner is None and config["partitioner.adaptive.partitioning.enable"]
                ),
                partition_availability_timeout_ms=config["partitioner.availability.timeout.ms"],
                guarantee_message_order=config["max.in.flight.requests.per.connection"] == 1,
                max_rows_batch_size=max_rows_batch_size,
                max_queued_rows=config["max.in.flight.requests.per.connection"] * config["max.request.size"],
            ),
            pool,
            self.clock,
            self.log_context,
            self.id_manager,
            rng,
            self.sender_thread,
            self._row_backlog(pool),
        )

    def _row_backlog(self, pool: BufferPool) -> RowBacklog | None:
        """Return the limit of what ``send_batch`` queues; None for memory alone."""
        return RowBacklog(self.clock, pool, self._before_wait_for_memory)

    def _before_wait_for_memory(self) -> bool:
        """Wake the sender, which may be sleeping while batches that hold all of the memory linger; return True.

        Raises:
            BufferExhaustedError: the current thread is the sender's, which must not wait for itself.
        """
        if self.sender_thread.is_current:
            raise BufferExhaustedError(
                "buffer.memory is used up, and a callback or a __del__ called send() on the sender's thread, which "
                "cannot wait for memory that only it can free. Send from another thread"
            )
        self.sender_thread.wakeup()
        return True

    def _metadata(self, config: ProducerConfig, addresses: list[tuple[str, int]], rng: Random) -> ProducerMetadata:
        listeners = ClusterResourceListeners([self.key_serializer, self.value_serializer, *self.metrics.reporters])
        metadata = ProducerMetadata(
            config["retry.backoff.ms"],
            config["retry.backoff.max.ms"],
            config["metadata.max.age.ms"],
            config["metadata.max.idle.ms"],
            self.log_context,
            self.clock,
            listeners,
            rng,
        )
        metadata.bootstrap(addresses)
        return metadata

    def close_plugins(self) -> None:
        """Close the interceptors, the serializers, the partitioner and the metrics; log their errors."""
        if self.interceptors is not None:
            self.interceptors.close()
        for plugin in (self.key_serializer, self.value_serializer, self.partitioner, self.metrics):
            close = getattr(plugin, "close", None)
            if callable(close):
                try:
                    close()
                except Exception:
                    log = self.log_context.logger(__name__)
                    log.exception("%s could not be closed", type(plugin).__name__)


def _serializer(config: ProducerConfig, name: str) -> Serializer[Any]:
    return serializer_for(config.configured_instance(name), name)


def _compression(config: ProducerConfig) -> Compression:
    codec = config["compression.type"]
    level = config[f"compression.{codec}.level"] if codec in {"gzip", "lz4", "zstd"} else None
    compression = Compression.of(codec, level)
    compression.compress(b"")  # fails here, not on the sender's thread, if the codec's package is missing
    return compression


def _throttle_time_sensor(metrics: Metrics) -> Sensor:
    sensor = metrics.sensor("produce-throttle-time")
    name = metrics.metric_name
    sensor.add(
        name("produce-throttle-time-avg", GROUP, "The average time in ms that a broker throttled the producer"), Avg()
    )
    sensor.add(
        name("produce-throttle-time-max", GROUP, "The longest time in ms that a broker throttled the producer"), Max()
    )
    return sensor
