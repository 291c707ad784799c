from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Any, final

from pykclient.aio.loop_waits import MemoryLine
from pykclient.clock import Clock
from pykclient.network.metadata import Metadata
from pykclient.producer.future import FutureRecordMetadata, OnDelivery, ProduceRequestResult
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.transaction_manager import TransactionManager
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import Buffer
from pykclient.serialization import Serializer
from pykclient.types import Headers, ProducerRecord, TopicPartition

class AppendState:
    _append_closed: bool
    _base_timestamp: int | None
    _last_offset: int | None
    _max_timestamp: int
    _position: int
    _records: bytearray
    _room: int
    _size_limit: int
    _size_factor: float
    _uncompressed_size: int
    base_offset: int
    is_control_batch: bool
    magic: int
    num_records: int

class BatchState:
    _builder: MemoryRecordsBuilder
    appended_bytes: int
    future_type: type[FutureRecordMetadata]
    is_open: bool
    max_record_size: int
    produce_future: ProduceRequestResult
    @property
    def record_count(self) -> int: ...

class SharedDelivery: ...

class FutureState:
    _key_size: int
    _result: ProduceRequestResult
    _timestamp_ms: int
    _value_size: int
    index: int

def keep_spares(future_type: type[FutureRecordMetadata]) -> None: ...

@final
class AwaitedRecords:
    def __init__(self, has_acks: bool) -> None: ...
    def add(self, record: FutureState, future: Any) -> None: ...
    def __call__(self, first: FutureRecordMetadata) -> None: ...

@final
class AwaitedSends:
    def __init__(
        self,
        producer: KafkaProducer[Any, Any],
        loop: AbstractEventLoop,
        create_future: Callable[[], Any],
        has_acks: bool,
        memory: MemoryLine,
    ) -> None: ...
    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
        may_start_batch: bool,
    ) -> Any: ...

@final
class Mutex:
    def __enter__(self) -> None: ...
    def __exit__(self, error_type: object, error: object, traceback: object) -> None: ...

class QueueState:
    def __init__(self, topic_partition: TopicPartition, batches: deque[ProducerBatch]) -> None: ...
    @property
    def batches(self) -> deque[ProducerBatch]: ...
    @property
    def lock(self) -> Mutex: ...
    @property
    def topic_partition(self) -> TopicPartition: ...

@final
class StickyPartitionInfo:
    produced_bytes: int
    def __init__(self, partition: int) -> None: ...
    @property
    def partition(self) -> int: ...

@final
class SendPath:
    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        transaction_manager: TransactionManager | None,
        ready: str,
        fatal_error: str,
        is_transactional: bool,
        clock: Clock | None,
        key_serializer: Serializer[Any],
        value_serializer: Serializer[Any],
        *,
        plain_keys: bool,
        plain_values: bool,
        ignore_keys: bool,
        max_record_size: int,
        batch_size: int,
        share: Callable[[Any, OnDelivery | None], tuple[Any, OnDelivery]] | None,
    ) -> None: ...

def send(
    self: KafkaProducer[Any, Any],
    topic: str | ProducerRecord[Any, Any],
    value: Any = None,
    key: Any = None,
    headers: Headers | None = None,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    on_delivery: OnDelivery | None = None,
) -> FutureRecordMetadata: ...
def try_append_to_batch(
    self: BatchState,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers,
    on_delivery: OnDelivery | None,
) -> FutureRecordMetadata | None: ...
def try_append_to_builder(
    self: AppendState, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> int: ...
