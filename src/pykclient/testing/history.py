"""The requests that brokers received, and their outcomes, for tests to inspect."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Any, Final

from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.protocol.message import Message, Response
    from pykclient.testing.event_loop import EventLoop
    from pykclient.testing.server.request_channel import Request

#: Outcomes of requests. A handled request goes from RECEIVED to ANSWERED or, if it gets no response, to SERVED.
RECEIVED: Final = "RECEIVED"
SERVED: Final = "SERVED"
ANSWERED: Final = "ANSWERED"
HELD: Final = "HELD"
REQUEST_DROPPED: Final = "REQUEST_DROPPED"
RESPONSE_DROPPED: Final = "RESPONSE_DROPPED"
DISCONNECTED: Final = "DISCONNECTED"

#: The maximum number of bytes of kept requests and responses, which refer to the records in them.
_MAX_BYTES: Final = 16 * 1024 * 1024


class RequestRecord:
    """A request. ``party`` is the sender, and ``principal`` whom it authenticated as. Both times are in milliseconds.

    Thread: loop; any, once there is a response.
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
        "principal",
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
        self.principal = request.principal
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
        """The error codes anywhere in the response, except 0."""
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
    """The latest requests, limited in number and bytes. Clients' requests are kept apart, as brokers send more.

    Counts include discarded records. Thread: loop.
    """

    __slots__ = ("_brokers", "_clients", "_loop", "_number", "counts")

    def __init__(self, loop: EventLoop, size: int = 10_000) -> None:
        self._loop = loop
        self._clients = _Records(size)
        self._brokers = _Records(size)
        self._number = 0
        #: The number of client requests by API key.
        self.counts: Counter[int] = Counter()

    def add(self, request: Request, api_version: int) -> RequestRecord:
        """Add a received request."""
        self._number += 1
        record = RequestRecord(self._number, request, api_version, self._loop.clock.wall_ms())
        if request.is_from_broker:
            self._brokers.add(record)
        else:
            self.counts[record.api_key] += 1
            self._clients.add(record)
        return record

    def answered(self, record: RequestRecord, response: Response, size_bytes: int) -> None:
        """Add the response to a request."""
        record.response = response
        record.answered_ms = self._loop.clock.now_ms()
        record.fate = ANSWERED
        records = self._brokers if record.party.startswith("broker-") else self._clients
        records.grow(record, size_bytes)

    @property
    def total(self) -> int:
        """The number of all requests of clients and brokers, including discarded ones."""
        return self._number

    def __iter__(self) -> Iterator[RequestRecord]:
        """Iterate over all kept records, oldest first."""
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
        """Return the records of an API (key or name), a client, a broker, a party.

        Without a party, only clients' are returned.

        ``after`` is the ``number`` of a record; only later ones are returned.
        """
        if party is not None and not isinstance(party, str):
            raise IllegalArgumentError(f"party is {shown(party)}; it must be a str such as 'broker-1'")
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
        """Remove all records, and reset the counts."""
        self._clients.clear()
        self._brokers.clear()
        self.counts.clear()


class _Records:
    """Records with limits on their number and bytes. Thread: loop."""

    __slots__ = ("_bytes", "_size", "records")

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = 0
        self.records: deque[RequestRecord] = deque()

    def add(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.grow(record, record.size_bytes)

    def grow(self, record: RequestRecord, size_bytes: int) -> None:
        """Add to the size of a record, if it is still kept."""
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
    """Return the key of an API given by key or by name, such as ``PRODUCE``, ``Produce`` or ``init_producer_id``.

    Raises:
        IllegalArgumentError: there is no such API.
    """
    if isinstance(api, int) and not isinstance(api, bool):
        return api
    if not isinstance(api, str):
        raise IllegalArgumentError(f"api is {shown(api)}; it must be the key or the name of an API, such as 'PRODUCE'")
    wanted = api.replace("_", "").lower()
    for key in ApiKeys.all():
        if ApiKeys.name_of(key).replace("_", "").lower() == wanted:
            return key
    names = ", ".join(ApiKeys.name_of(key) for key in ApiKeys.all())
    raise IllegalArgumentError(f"there is no API {shown(api)}; there are {names}")


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
