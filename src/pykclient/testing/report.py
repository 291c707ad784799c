"""The cluster's part of a failed test's report: its state, and the latest requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykclient.errors import for_code
from pykclient.testing import history
from pykclient.testing.cluster_state import ClusterState

if TYPE_CHECKING:
    from pykclient.testing.embedded_cluster import EmbeddedCluster
    from pykclient.testing.history import RequestRecord

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
    if record.fate == history.ANSWERED and record.answered_ms is not None:
        errors = ", ".join(_error_name(code) for code in sorted(record.error_codes))
        return f"{errors or 'answered'} after {record.answered_ms - record.time_ms} ms"
    return _FATES[record.fate]


_FATES = {
    history.RECEIVED: "no response yet",
    history.SERVED: "served, needs no response",
    history.ANSWERED: "answered",
    history.HELD: "held back",
    history.REQUEST_DROPPED: "dropped before it took effect",
    history.RESPONSE_DROPPED: "response dropped",
    history.DISCONNECTED: "connection closed without a response",
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
