"""Sending the common records of an AIOKafkaProducer without its Python code."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykclient.aio.awaited_records import RecordFuture
from pykclient.aio.loop_waits import MemoryLine
from pykclient.implementation import use_compiled
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.types import Headers

if TYPE_CHECKING:
    from pykclient.aio.loop_driver import Resumption


class AwaitedSends:
    """Sends the common records of an AIOKafkaProducer at once, if it has neither serializers nor interceptors.

    The Python form leaves all records to ``AIOKafkaProducer._send``. Thread: the loop's.
    """

    __slots__ = ()

    def __init__(
        self,
        producer: KafkaProducer[Any, Any],
        loop: AbstractEventLoop,
        create_future: Callable[[], RecordFuture],
        has_acks: bool,
        memory: MemoryLine,
        resumed: list[Resumption],
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
    ) -> RecordFuture | None:
        """Append a common record, and return an asyncio future for it; None if nothing has happened.

        Only with ``may_start_batch`` a record may start a batch: the caller then leaves the thread to the loop, and
        waits for the future, so that ``AwaitedRecords`` may put it into ``resumed``. Such a caller has checked that the
        loop runs on this thread.
        """
        return None


use_compiled(__name__)
