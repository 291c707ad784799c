"""A Selectable without sockets: a test opens and breaks connections and sends responses (Java: MockSelector)."""

from __future__ import annotations

import io

from pykclient.clock import FOREVER_MS
from pykclient.network import channel_state
from pykclient.network.channel_state import ChannelState
from pykclient.network.client_request import RepeatableRequest
from pykclient.network.frames import NetworkReceive, NetworkSend
from pykclient.network.selectable import SocketAddress
from pykclient.protocol.headers import RequestHeader, encode_response, parse_request
from pykclient.protocol.message import Request, Response
from tests.support.mock_clock import MockClock


class SentRequest:
    """A request as a broker would read it."""

    def __init__(self, node_id: str, send: NetworkSend, data: bytes) -> None:
        self.node_id = node_id
        self.send = send
        self.header: RequestHeader
        self.body: Request
        self.header, self.body = parse_request(data[4:])


class MockSelector:
    """A selector that connects and sends at once, unless ``auto_connect`` is false or ``hold_sends`` is true.

    ``poll`` advances the clock by its timeout. Thread: owner.
    """

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.auto_connect = True
        self.hold_sends = False
        self.connect_error: OSError | None = None
        self.addresses: dict[str, SocketAddress] = {}
        self.ready: set[str] = set()
        self.requests: list[SentRequest] = []
        self.polls: list[int] = []
        self.wakeups = 0
        self.closed = False
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.disconnected: dict[str, ChannelState] = {}
        self.connected: list[str] = []
        self._next_sends: list[NetworkSend] = []
        self._next_receives: list[NetworkReceive] = []
        self._next_disconnected: dict[str, ChannelState] = {}
        self._next_connected: list[str] = []

    # --- Selectable ------------------------------------------------------------------------------------------------

    def connect(self, id: str, address: SocketAddress, send_buffer: int, receive_buffer: int) -> None:
        self.addresses[id] = address
        if self.connect_error is not None:
            raise self.connect_error
        if self.auto_connect:
            self.complete_connection(id)

    def send(self, send: NetworkSend) -> None:
        data = b"".join(bytes(buffer) for buffer in send.pending())
        self.requests.append(SentRequest(send.destination_id, send, data))
        if not self.hold_sends:
            self.complete_send(send)

    def poll(self, timeout_ms: int) -> None:
        self.polls.append(timeout_ms)
        self.completed_sends, self._next_sends = self._next_sends, []
        self.completed_receives, self._next_receives = self._next_receives, []
        self.disconnected, self._next_disconnected = self._next_disconnected, {}
        self.connected, self._next_connected = self._next_connected, []
        self.clock.advance(timeout_ms)

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a mock has no descriptor")

    def wait_bound_ms(self, now_ms: int) -> int:
        news = self._next_sends or self._next_receives or self._next_disconnected or self._next_connected
        return 0 if news else FOREVER_MS

    def wakeup(self) -> None:
        self.wakeups += 1

    def close_channel(self, id: str) -> None:
        self._forget(id)
        self._next_disconnected.pop(id, None)

    def is_channel_ready(self, id: str) -> bool:
        return id in self.ready

    def mute(self, id: str) -> None:
        """Do nothing: clients never mute."""

    def unmute(self, id: str) -> None:
        """Do nothing: clients never mute."""

    def repeat(self, id: str, request: RepeatableRequest) -> None:
        """Do nothing: the client sends requests again itself."""

    def end_interrupted_wait(self) -> bool:
        return False

    def drop_connections(self) -> None:
        for id in list(self.ready):
            self.close_channel(id)

    def close(self) -> None:
        self.closed = True
        self.ready.clear()

    def _forget(self, id: str) -> None:
        self.ready.discard(id)
        self.requests = [request for request in self.requests if request.node_id != id]

    # --- the other side --------------------------------------------------------------------------------------------

    def complete_connection(self, id: str) -> None:
        self.ready.add(id)
        self._next_connected.append(id)

    def complete_send(self, send: NetworkSend) -> None:
        send.advance(send.remaining)
        self._next_sends.append(send)

    def disconnect(
        self, id: str, state: str = channel_state.READY, cause: Exception | None = None, **details: object
    ) -> None:
        """Close the connection as the server would."""
        self._forget(id)
        exception = details.get("exception")
        self._next_disconnected[id] = ChannelState(state, exception, cause=cause)  # type: ignore[arg-type]

    def pending(self, node_id: str) -> list[SentRequest]:
        return [request for request in self.requests if request.node_id == node_id]

    def respond(self, node_id: str, body: Response, *, correlation_id: int | None = None) -> None:
        """Respond to the oldest request to a node that has no response yet."""
        request = self.pending(node_id)[0]
        self.requests.remove(request)
        header = request.header
        answered = header.correlation_id if correlation_id is None else correlation_id
        self.receive(node_id, encode_response(body, header.api_version, answered).getvalue()[4:])

    def receive(self, node_id: str, frame: bytes) -> None:
        """Deliver a frame with any content."""
        self._next_receives.append(NetworkReceive(node_id, frame))
