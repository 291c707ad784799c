"""What ``send`` needs of a producer for each record, as one small value that others keep up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykclient.implementation import use_compiled
from pykclient.producer.queue_state import StickyState as StickyState  # the compiled form uses its compiled form
from pykclient.producer.record_fields import FutureState as FutureState  # and this one's

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.clock import Clock
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.accumulator_state import TopicInfo
    from pykclient.producer.future import OnDelivery
    from pykclient.serialization import Serializer

#: Upper bound, in bytes, of what a batch of one record without headers adds to its key and value.
RECORD_OVERHEAD: Final = 128


class SendPath:
    """The settings of a producer without a partitioner of its own, and its state as far as a record needs it.

    The metadata, the accumulator and the transaction manager set the attributes whenever they change. Only the compiled
    ``send`` reads them. Thread: any.
    """

    __slots__ = ("is_closed", "refuses", "snapshot", "start", "topics")

    def __init__(
        self,
        clock: Clock | None,
        key_serializer: Serializer[Any],
        value_serializer: Serializer[Any],
        *,
        is_transactional: bool,
        plain_keys: bool,
        plain_values: bool,
        ignore_keys: bool,
        max_record_size: int,
        batch_size: int,
        share: Callable[[Any, OnDelivery | None], tuple[Any, OnDelivery]] | None,
    ) -> None:
        """Sizes are in bytes.

        If ``clock`` is None, records get the machine's time. ``plain_keys`` and ``plain_values``: bytes and None need
        no serializer. ``share`` is what interceptors make of the headers and the ``on_delivery`` of a record.
        """
        #: True once the accumulator accepts no more records.
        self.is_closed = False
        #: True while the transaction manager accepts no records: the Python ``send`` raises the error.
        self.refuses = False
        #: A BatchStart; None where only the Python code starts batches.
        self.start: object = None
        #: The latest metadata.
        self.snapshot: MetadataSnapshot | None = None
        #: The accumulator's queues by topic.
        self.topics: Mapping[str, TopicInfo] | None = None


class SendState:
    """The state of a KafkaProducer that its ``send`` reads first."""

    __slots__ = ("_send_path",)
    #: None where the Python ``send`` has to handle all records.
    _send_path: SendPath | None


use_compiled(__name__)
