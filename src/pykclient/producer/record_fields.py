"""The fields of batches and futures that each record changes or has."""

from __future__ import annotations

from pykclient.implementation import use_compiled
from pykclient.record.append_state import AppendState


class BatchState:
    """The fields of a batch that each record changes. The compiled form stores numbers as C integers."""

    __slots__ = ("_builder", "appended_bytes", "future_type", "is_open", "max_record_size", "produce_future")
    _builder: AppendState
    #: False once a record found no room, or the batch was closed for appends.
    is_open: bool

    @property
    def record_count(self) -> int:
        """The number of records, counted by the builder as it appends, so that the two cannot differ."""
        return self._builder.num_records


class FutureState:
    """The fields of a future. The compiled form stores numbers as C integers."""

    __slots__ = ("_key_size", "_result", "_timestamp_ms", "_value_size", "index")


class SharedDelivery:
    """An ``on_delivery`` that a batch keeps, and calls, once for adjacent records that have the same one."""

    __slots__ = ()


def keep_spares(future_type: type[FutureState]) -> None:
    """Keep the memory of dead instances of ``future_type`` for new ones. It adds no fields to FutureState.

    Only the compiled form does so.
    """


use_compiled(__name__)
