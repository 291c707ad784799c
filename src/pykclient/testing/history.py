"""What was asked of the brokers and what became of it, for tests to look at."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Any, Final

from pykclient.errors import IllegalArgumentError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.protocol.message import Message, Response
    from pykclient.testing.event_loop import EventLoop
    from pykclient.testing.server.request_channel import Request

#: Fates of requests. What is served goes from RECEIVED to ANSWERED or, where no answer is wanted, to SERVED.
RECEIVED: Final = "RECEIVED"
SERVED: Final = "SERVED"
ANSWERED: Final = "ANSWERED"
HELD: Final = "HELD"
REQUEST_DROPPED: Final = "REQUEST_DROPPED"
RESPONSE_DROPPED: Final = "RESPONSE_DROPPED"
DISCONNECTED: Final = "DISCONNECTED"

#: Bytes of requests and responses that are kept at most: they hold on to the records in them.
_MAX_BYTES: Final = 16 * 1024 * 1024


class RequestRecord:
    """One request. ``party`` is who sent it, ``response`` what it was answered with; both times are milliseconds.

    Thread: loop; any, once there is an answer.
    """

    __slots__ = (
        "answered_ms",
        "api_key",
        "api_version",
        "body",
        "broker_id",
        "client_id",
        "fate",
        "kept_bytes",
        "number",
        "party",
        "response",
        "size_bytes",
        "throttle_time_ms",
        "time_ms",
        "wall_ms",
    )

    def __init__(self, number: int, request: Request, api_version: int, wall_ms: int) -> None:
        self.number = number
        self.time_ms = request.received_ms
        self.wall_ms = wall_ms
        self.broker_id = request.broker_id
        self.party = request.party
        self.client_id = request.client_id
        self.api_key = request.api_key
        self.api_version = api_version
        self.body: Message = request.body
        self.size_bytes = request.size_bytes
        self.kept_bytes = 0
        self.response: Response | None = None
        self.answered_ms: int | None = None
        self.throttle_time_ms = 0
        self.fate = RECEIVED

    @property
    def api(self) -> str:
        """The API's name, such as ``PRODUCE``."""
        return ApiKeys.name_of(self.api_key)

    @property
    def error_codes(self) -> set[int]:
        """The error codes anywhere in the answer, without 0."""
        return set() if self.response is None else set(_error_codes(self.response))

    def __lt__(self, other: RequestRecord) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        errors = f", errors {sorted(self.error_codes)}" if self.error_codes else ""
        return (
            f"RequestRecord({self.time_ms} ms: {self.api} v{self.api_version} from {self.party} "
            f"to broker-{self.broker_id}, {self.fate}{errors})"
        )


class History:
    """The latest requests, bounded in number and in bytes; those of clients apart, as brokers ask more often.

    Counts go on when records are forgotten. Thread: loop.
    """

    __slots__ = ("_brokers", "_clients", "_loop", "_number", "counts")

    def __init__(self, loop: EventLoop, size: int = 10_000) -> None:
        self._loop = loop
        self._clients = _Records(size)
        self._brokers = _Records(size)
        self._number = 0
        #: Requests of clients by API key.
        self.counts: Counter[int] = Counter()

    def add(self, request: Request, api_version: int) -> RequestRecord:
        """Note a request that came in."""
        self._number += 1
        record = RequestRecord(self._number, request, api_version, self._loop.wall_ms)
        if request.is_from_broker:
            self._brokers.add(record)
        else:
            self.counts[record.api_key] += 1
            self._clients.add(record)
        return record

    def answered(self, record: RequestRecord, response: Response, size_bytes: int) -> None:
        """Note the answer to a request."""
        record.response = response
        record.answered_ms = self._loop.now_ms
        record.fate = ANSWERED
        records = self._brokers if record.party.startswith("broker-") else self._clients
        records.grow(record, size_bytes)

    @property
    def total(self) -> int:
        """Requests of clients and of brokers so far, forgotten ones included."""
        return self._number

    def __iter__(self) -> Iterator[RequestRecord]:
        """All that are kept, oldest first."""
        return merge(list(self._brokers.records), list(self._clients.records))

    def __len__(self) -> int:
        return len(self._brokers.records) + len(self._clients.records)

    def matching(
        self,
        *,
        api: int | str | None = None,
        client_id: str | None = None,
        broker: int | Node | None = None,
        party: str | None = None,
        after: int = 0,
    ) -> list[RequestRecord]:
        """Those of an API (by key or name), a client, a broker, a party; of clients only, unless a party is named.

        ``after`` leaves out those up to that ``number``, and so looks at what came since.
        """
        key = api_key_of(api) if api is not None else None
        broker_id = broker.id if isinstance(broker, Node) else broker
        records = self._brokers if party is not None and party.startswith("broker-") else self._clients
        return [
            record
            for record in list(records.records)
            if record.number > after
            and (key is None or record.api_key == key)
            and (client_id is None or record.client_id == client_id)
            and (broker_id is None or record.broker_id == broker_id)
            and (party is None or record.party == party)
        ]

    def clear(self) -> None:
        """Forget all records and counts."""
        self._clients.clear()
        self._brokers.clear()
        self.counts.clear()


class _Records:
    """Records with a bound on their number and on their bytes. Thread: loop."""

    __slots__ = ("_bytes", "_size", "records")

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = 0
        self.records: deque[RequestRecord] = deque()

    def add(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.grow(record, record.size_bytes)

    def grow(self, record: RequestRecord, size_bytes: int) -> None:
        """Count bytes that are kept with a record, unless it is forgotten."""
        records = self.records
        if not records or record.number < records[0].number:
            return
        record.kept_bytes += size_bytes
        self._bytes += size_bytes
        while records and (len(records) > self._size or self._bytes > _MAX_BYTES):
            self._bytes -= records.popleft().kept_bytes

    def clear(self) -> None:
        self.records.clear()
        self._bytes = 0


def api_key_of(api: int | str) -> int:
    """The key of an API given by key or by name, such as ``PRODUCE``, ``Produce`` or ``init_producer_id``.

    Raises IllegalArgumentError for a name that there is not.
    """
    if isinstance(api, int):
        return api
    wanted = api.replace("_", "").lower()
    for key in ApiKeys.all():
        if ApiKeys.name_of(key).replace("_", "").lower() == wanted:
            return key
    names = ", ".join(ApiKeys.name_of(key) for key in ApiKeys.all())
    raise IllegalArgumentError(f"there is no API {api!r}; there are {names}")


def _error_codes(message: Message) -> Iterator[int]:
    for name in message.__slots__:
        value: Any = getattr(message, name)
        if name.endswith("error_code"):
            if value:
                yield value
        elif isinstance(value, list):
            for element in value:
                if not hasattr(element, "write"):
                    break
                yield from _error_codes(element)
