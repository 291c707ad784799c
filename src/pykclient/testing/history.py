"""The requests that brokers received, and their outcomes, for tests to inspect and for reports."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError, for_code
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.message import Message, Response
    from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
    from pykclient.testing.cluster import Cluster
    from pykclient.testing.embedded_cluster import EmbeddedCluster
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
    """A request of ``party``, which authenticated as ``principal``. Both times are in milliseconds.

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
    """The latest requests, limited in number and bytes. Requests of clients and of brokers are limited separately.

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


class PartitionState(NamedTuple):
    """The state of a partition on the controller. The offsets are its leader's, 0 without one."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int


class GroupState(NamedTuple):
    """The state of a consumer group on its coordinator."""

    state: str
    generation: int
    members: int


class ClusterState(NamedTuple):
    """Brokers by id (each ``running``, ``paused`` or ``down``), topics except internal ones, and groups."""

    brokers: dict[int, str]
    controller: int | None
    partitions: dict[TopicPartition, PartitionState]
    groups: dict[str, GroupState]

    @classmethod
    def of(cls, cluster: Cluster) -> ClusterState:
        """Return the current state of a cluster. Thread: loop."""
        controller = cluster.active_controller()
        brokers = dict.fromkeys(cluster.nodes, "down")
        brokers |= {broker.id: "paused" if broker.paused else "running" for broker in cluster.alive_brokers()}
        witness = controller or next(iter(cluster.alive_brokers()), None)
        states = {} if witness is None else witness.metadata_cache.snapshot.partition_states
        partitions = {
            TopicPartition(topic, index): _partition_state(cluster, TopicPartition(topic, index), state)
            for topic, of_topic in sorted(states.items())
            if not topic.startswith("__")
            for index, state in sorted(of_topic.items())
        }
        groups = {
            group.group_id: GroupState(group.state.name, group.generation_id, len(group.members))
            for broker in cluster.alive_brokers()
            for group in broker.group_coordinator.groups.values()
        }
        return cls(brokers, None if controller is None else controller.id, partitions, dict(sorted(groups.items())))


def _partition_state(
    cluster: Cluster, topic_partition: TopicPartition, state: UpdateMetadataRequest.UpdateMetadataPartitionState
) -> PartitionState:
    leader = cluster.brokers.get(state.leader)
    partition = None if leader is None else leader.replica_manager.partition(topic_partition)
    log = None if partition is None else partition.log
    start, end = (0, 0) if log is None else (log.log_start_offset, log.log_end_offset)
    known = state.leader if state.leader >= 0 else None
    return PartitionState(known, tuple(state.replicas), tuple(state.isr), start, end)


#: The maximum numbers of lines for partitions and for requests.
_PARTITIONS = 20

_REQUESTS = 30


def failure_report(cluster: EmbeddedCluster, asked_before: int = 0) -> str:
    """Return the cluster's state and its requests after number ``asked_before``, or why they are unavailable."""
    try:
        state, requests = cluster.state(), cluster.requests_of(after=asked_before)
    except Exception as error:  # noqa: BLE001 - a hook's, for instance, and the test has failed already
        return f"nothing is known of it: {error!r}"
    return "\n".join([*_state_lines(state), *_request_lines(requests)])


def request_line(record: RequestRecord) -> str:
    """Return a line about a request, with its source and outcome."""
    who = record.client_id or record.party
    return f"{who} -> broker {record.broker_id}: {record.api} v{record.api_version}, {_fate(record)}"


def _fate(record: RequestRecord) -> str:
    if record.fate == ANSWERED and record.answered_ms is not None:
        errors = ", ".join(_error_name(code) for code in sorted(record.error_codes))
        return f"{errors or 'answered'} after {record.answered_ms - record.time_ms} ms"
    return _FATES[record.fate]


_FATES = {
    RECEIVED: "no response yet",
    SERVED: "served, needs no response",
    ANSWERED: "answered",
    HELD: "held back",
    REQUEST_DROPPED: "dropped before it took effect",
    RESPONSE_DROPPED: "response dropped",
    DISCONNECTED: "connection closed without a response",
}


def _error_name(code: int) -> str:
    error = for_code(code)
    return str(code) if error is None else error.error_name


def _state_lines(state: ClusterState) -> Iterator[str]:
    for broker, what in state.brokers.items():
        yield f"broker {broker}: {what}{', controller' if broker == state.controller else ''}"
    if state.controller is None:
        yield "no controller"
    for number, (topic_partition, partition) in enumerate(state.partitions.items()):
        if number == _PARTITIONS:
            yield f"... {len(state.partitions) - number} partitions more"
            break
        leader = "no leader" if partition.leader is None else f"leader {partition.leader}"
        isr, replicas = (",".join(map(str, ids)) for ids in (partition.isr, partition.replicas))
        offsets = f"offsets {partition.log_start_offset} to {partition.log_end_offset}"
        yield f"{topic_partition}: {leader}, in sync {isr or 'none'} of {replicas}, {offsets}"
    for group, membership in state.groups.items():
        yield f"group {group}: {membership.state}, generation {membership.generation}, members: {membership.members}"


def _request_lines(requests: list[RequestRecord]) -> Iterator[str]:
    if not requests:
        yield "no requests of clients"
        return
    shown = requests[-_REQUESTS:]
    yield f"requests of clients, the last {len(shown)} of {len(requests)}, with milliseconds since the first of these:"
    for record in shown:
        yield f"{record.time_ms - shown[0].time_ms:>7} {request_line(record)}"
