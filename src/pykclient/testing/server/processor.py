"""Brokers' connections: receiving frames, one request at a time for each, and sending responses (Java: Processor)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pykclient.errors import IllegalStateError, RemoteProtocolError
from pykclient.log_context import LogContext
from pykclient.network.authenticator import Session
from pykclient.network.frames import Frame, NetworkSend
from pykclient.network.selectable import Selectable
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import parse_request_header
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.testing.broker import Broker
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.memory_network import LinkPolicy
from pykclient.testing.request_channel import ANONYMOUS, Request
from pykclient.types import Node

NOT_MUTED: Final = "NOT_MUTED"

RESPONSE_PENDING: Final = "RESPONSE_PENDING"

THROTTLED: Final = "THROTTLED"

THROTTLED_AND_RESPONSE_PENDING: Final = "THROTTLED_AND_RESPONSE_PENDING"

REQUEST_RECEIVED: Final = "REQUEST_RECEIVED"

RESPONSE_SENT: Final = "RESPONSE_SENT"

THROTTLE_STARTED: Final = "THROTTLE_STARTED"

THROTTLE_ENDED: Final = "THROTTLE_ENDED"

#: The state after each event.
MOVES: Final[dict[str, dict[str, str]]] = {
    NOT_MUTED: {REQUEST_RECEIVED: RESPONSE_PENDING},
    RESPONSE_PENDING: {RESPONSE_SENT: NOT_MUTED, THROTTLE_STARTED: THROTTLED_AND_RESPONSE_PENDING},
    THROTTLED_AND_RESPONSE_PENDING: {RESPONSE_SENT: THROTTLED, THROTTLE_ENDED: RESPONSE_PENDING},
    THROTTLED: {THROTTLE_ENDED: NOT_MUTED},
}


def after(state: str, event: str) -> str:
    """Return the state after ``event``.

    Raises:
        IllegalStateError: the table does not have the transition.
    """
    try:
        return MOVES[state][event]
    except KeyError:
        raise IllegalStateError(f"{event} cannot happen to a connection that is {state}") from None


#: Waiting frames of one connection before the connection is muted. More than none, because clients send several
#: requests at a time, and muting and unmuting costs more than handling a small request.
_MAX_BACKLOG: Final = 8

#: Requests of one connection that are handled before the others get their turn.
_MAX_AT_A_TIME: Final = 16

#: Responses of one connection that may be in flight over a slow link.
_MAX_OUTBOX: Final = 64


class ServerSelectable(Selectable, Protocol):
    """The additional interface that a processor needs. Thread: loop."""

    def register(self, id: str, sock: Any) -> None:
        """Take over an accepted connection."""

    def reset_channel(self, id: str) -> None:
        """Close a connection abruptly, as if its process had died."""

    def session_of(self, id: str) -> Session | None:
        """Return the SASL session of a connection; None if it has none."""

    def reauthenticate(self, id: str, frame: Frame) -> None:
        """Begin to reauthenticate a connection in use, with ``frame``."""


@dataclass(slots=True, eq=False, repr=False)
class Connection:
    """A connection of a client or another broker to ``broker``.

    ``party`` is known from the start in a memory network, otherwise from the first request. Thread: loop.
    """

    id: str
    broker: Broker
    host: str
    party: str | None
    last_used_ms: int
    endpoints: Mapping[int, Node] | None  # the advertised addresses, if there are proxies
    uses_sasl: bool
    has_principal: bool  # True if the session names the client
    client_id: str | None = ""  # the client id from which the party was derived
    state: str = NOT_MUTED
    #: Waiting requests, and when they have arrived over the link.
    backlog: deque[tuple[Frame, int]] = field(default_factory=deque)
    last_arrival_ms: int = 0
    #: Responses on a slow link, and when they may be sent.
    outbox: deque[tuple[NetworkSend, int]] = field(default_factory=deque)
    last_leave_ms: int = 0
    relaying: NetworkSend | None = None  # a response from the outbox that the socket did not take at once
    sending: NetworkSend | None = None  # a response that the socket did not take at once
    serving: bool = False
    unread: bool = False  # True if the selector does not read it


class Processor:
    """Serves the connections of one or several brokers.

    As in Java, a connection's next request waits until the last response is sent, and a throttled client's until the
    throttle time is over. There is no queue between processor and handlers: all run on one loop, so an immediate
    response is sent immediately. ``links`` is set if connections are real: faulty links are then emulated here, frame
    by frame. Thread: loop.
    """

    def __init__(
        self, loop: EventLoop, selector: ServerSelectable, log_context: LogContext, links: LinkPolicy | None = None
    ) -> None:
        self._loop = loop
        self._selector = selector
        self._log = log_context.logger(__name__)
        self._links = links
        self._connections: dict[str, Connection] = {}
        self._runnable: dict[Connection, None] = {}  # have used up their share of the last poll and have more
        self._held_up: dict[Connection, None] = {}  # blocked by a cut link
        self._next_id = 0
        if links is not None:
            links.subscribe(self._links_changed)

    # --- connections -------------------------------------------------------------------------------------------------

    def accept(
        self,
        broker: Broker,
        sock: Any,
        host: str,
        party: str | None = None,
        endpoints: Mapping[int, Node] | None = None,
        uses_sasl: bool = False,
        has_principal: bool = False,
    ) -> None:
        """Accept a connection to ``broker`` from ``host``, if the broker's limits allow it.

        ``endpoints`` are the brokers' addresses to advertise on this connection.
        """
        if not self._has_room(broker, host):
            sock.close()
            return
        self._next_id += 1
        id = f"{broker.id}-{host}-{self._next_id}"
        connection = Connection(id, broker, host, party, self._loop.now_ms, endpoints, uses_sasl, has_principal)
        try:
            self._selector.register(connection.id, sock)
        except OSError as error:
            self._log.debug("A connection from %s was gone before it was accepted: %s", host, error)
            sock.close()
            return
        self._connections[connection.id] = connection

    def _has_room(self, broker: Broker, host: str) -> bool:
        """Return whether a broker can accept another connection, after closing an idle one if necessary."""
        per_ip: int = broker.config["max.connections.per.ip"]
        most: int = broker.config["max.connections"]
        if len(self._connections) < min(per_ip, most):
            return True
        mine = self.connections_of(broker)
        if sum(connection.host == host for connection in mine) >= per_ip:
            self._log.info("Refusing a connection from %s to broker %d: it has %d already", host, broker.id, per_ip)
            return False
        if len(mine) >= most:
            oldest = min(mine, key=lambda connection: connection.last_used_ms)
            self._log.info("Closing %s, idle for longest, to make room for another one", oldest.id)
            self._close(oldest)
        return True

    def connections_of(self, broker: Broker) -> list[Connection]:
        return [connection for connection in self._connections.values() if connection.broker is broker]

    def close_connections(self, broker: Broker, *, reset: bool) -> None:
        """Close all connections of a broker."""
        for connection in self.connections_of(broker):
            self._close(connection, reset=reset)

    def _close(self, connection: Connection, *, reset: bool = False) -> None:
        self._forget(connection)
        if reset:
            self._selector.reset_channel(connection.id)
        else:
            self._selector.close_channel(connection.id)

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection.id]
        self._runnable.pop(connection, None)
        self._held_up.pop(connection, None)
        connection.backlog.clear()
        connection.outbox.clear()
        connection.broker.on_disconnect(connection.id)

    # --- one iteration -----------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> None:
        """Process the data that has arrived; wait at most ``timeout_ms`` for something."""
        selector = self._selector
        selector.poll(timeout_ms)
        connections = self._connections
        for send in selector.completed_sends:
            sender = connections.get(send.destination_id)
            if sender is None:
                continue
            if sender.sending is send:
                sender.sending = None
                self._sent(sender)
            elif sender.relaying is send:
                sender.relaying = None
                self._relay(sender)
        turns, self._runnable = self._runnable, {}
        if selector.completed_receives:
            now_ms = self._loop.clock.now_ms()
            for source, frame in selector.completed_receives:
                receiver = connections.get(source)
                if receiver is not None:
                    self._received(receiver, frame, now_ms)
                    turns[receiver] = None
        for connection in turns:
            self._serve(connection)
        for id in selector.disconnected:
            gone = connections.get(id)
            if gone is not None:
                self._disconnected(gone)

    def _disconnected(self, connection: Connection) -> None:
        """Forget a connection that the peer has closed, after serving what has arrived on it."""
        while connection in self._runnable:  # a client without responses (acks=0) may send and disconnect
            del self._runnable[connection]
            self._serve(connection)
        if connection.id in self._connections:  # a request that fails without a response closes the connection itself
            self._forget(connection)

    def _received(self, connection: Connection, frame: Frame, now_ms: int) -> None:
        connection.last_used_ms = now_ms
        arrival_ms = now_ms
        links = self._links
        if links is not None and links.active:
            link = links.link(self._party(connection, frame), connection.broker.party)
            if link.reset:
                self._close(connection, reset=True)
                return
            if not link.perfect:
                arrival_ms += link.transit_ms(len(frame), now_ms, links.rng)
                connection.last_arrival_ms = arrival_ms = max(connection.last_arrival_ms, arrival_ms)
        connection.backlog.append((frame, arrival_ms))

    def serve_all(self, broker: Broker) -> None:
        """Continue after a pause."""
        for connection in self.connections_of(broker):
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        """Handle a connection's requests as long as the responses are immediate."""
        if connection.serving:
            return  # the response was immediate, and the loop below continues
        backlog = connection.backlog
        connection.serving = True
        left = _MAX_AT_A_TIME
        try:
            while backlog and connection.state is NOT_MUTED and not connection.broker.paused:
                if self._links is not None and self._must_wait(connection, self._links):
                    break
                if not left:
                    self._runnable[connection] = None
                    self._selector.wakeup()
                    break
                left -= 1
                self._handle(connection, *backlog.popleft())
        finally:
            connection.serving = False
        if connection.unread != (len(backlog) > _MAX_BACKLOG) and self._selector.is_channel_ready(connection.id):
            connection.unread = not connection.unread
            if connection.unread:
                self._selector.mute(connection.id)
            else:
                self._selector.unmute(connection.id)

    def _handle(self, connection: Connection, frame: Frame, received_ms: int) -> None:
        reader = Reader(frame)
        try:
            header = parse_request_header(reader)
        except RemoteProtocolError as error:
            self._log.info("Closing connection %s: %s", connection.id, error)
            self._close(connection)
            return
        principal = ANONYMOUS
        uses_token = False
        if connection.has_principal:
            session = self._selector.session_of(connection.id)
            if session is None:
                return  # the connection is closed, and the next poll reports that
            if session.user is None:
                self._log.info("Closing connection %s: no rule applies to its certificate", connection.id)
                self._close(connection)
                return
            if connection.uses_sasl and header.api_key == ApiKeys.SASL_HANDSHAKE:
                self._selector.reauthenticate(connection.id, frame)
                return
            if session.expiry_ms is not None and self._loop.now_ms >= session.expiry_ms:
                self._log.info("Closing connection %s: its session has expired", connection.id)
                self._close(connection)
                return
            principal = f"User:{session.user}"
            uses_token = session.uses_token
        party = connection.party
        if header.client_id != connection.client_id or party is None:
            party = self._name(connection, header.client_id)
        connection.state = after(connection.state, REQUEST_RECEIVED)
        channel = connection.broker.request_channel
        request = Request(channel, self, header, reader, connection.id, party, connection.host, received_ms)
        request.principal = principal
        request.uses_token = uses_token
        if connection.endpoints is not None:
            request.endpoints = connection.endpoints
        channel.send_request(request)

    # --- identity ----------------------------------------------------------------------------------------------------

    def _party(self, connection: Connection, frame: Frame) -> str:
        """Return the party of a connection, from its first request if it is not known otherwise."""
        if connection.party is None:
            try:
                return self._name(connection, parse_request_header(Reader(frame)).client_id)
            except RemoteProtocolError:
                return "client:"  # and closed soon
        return connection.party

    @staticmethod
    def _name(connection: Connection, client_id: str | None) -> str:
        if connection.party is None or connection.party.startswith("client:"):
            connection.party = f"client:{client_id or ''}"
        connection.client_id = client_id
        return connection.party

    # --- answers -----------------------------------------------------------------------------------------------------

    def send_response(self, request: Request, buffers: list[BytesLike] | None, throttle_time_ms: int) -> None:
        """Send a frame, if there is one, then read the connection's next request, after the throttle time."""
        connection = self._connections.get(request.connection_id)
        if connection is None:
            return
        if throttle_time_ms > 0:
            connection.state = after(connection.state, THROTTLE_STARTED)
            self._loop.call_later(throttle_time_ms, self._throttle_ended, connection)
        if buffers is None:
            self._sent(connection)
            return
        send = NetworkSend(connection.id, buffers)
        links = self._links
        if links is not None and (links.active or connection.outbox or connection.relaying):
            self._send_over_link(connection, send, links)
        elif self._selector.is_channel_ready(connection.id):  # if not, it is closed, and the next poll reports that
            self._selector.send(send)
            if send.completed:
                self._sent(connection)
            else:
                connection.sending = send

    def _sent(self, connection: Connection) -> None:
        """Handle a sent response."""
        connection.state = after(connection.state, RESPONSE_SENT)
        if connection.backlog:
            self._serve(connection)

    def _throttle_ended(self, connection: Connection) -> None:
        if connection.id in self._connections:
            connection.state = after(connection.state, THROTTLE_ENDED)
            self._serve(connection)

    def close_connection(self, request: Request) -> None:
        """Close the connection of a request."""
        connection = self._connections.get(request.connection_id)
        if connection is not None:
            self._close(connection)

    # --- faulty links ------------------------------------------------------------------------------------------------

    def _must_wait(self, connection: Connection, links: LinkPolicy) -> bool:
        """Return whether the next request must wait; if so, schedule it."""
        if len(connection.outbox) >= _MAX_OUTBOX:
            return True
        frame, arrival_ms = connection.backlog[0]
        if links.active and links.link(self._party(connection, frame), connection.broker.party).cut:
            self._held_up[connection] = None
            return True
        delay_ms = arrival_ms - self._loop.now_ms
        if delay_ms > 0:
            self._loop.call_later(delay_ms, self._serve, connection)
            return True
        return False

    def _send_over_link(self, connection: Connection, send: NetworkSend, links: LinkPolicy) -> None:
        """Send a response when it would have arrived over the link. The broker considers it sent."""
        now_ms = self._loop.now_ms
        link = links.link(connection.broker.party, connection.party or "")
        connection.last_leave_ms = max(
            connection.last_leave_ms, now_ms + link.transit_ms(send.remaining, now_ms, links.rng)
        )
        connection.outbox.append((send, connection.last_leave_ms))
        self._relay(connection)
        self._sent(connection)

    def _relay(self, connection: Connection) -> None:
        """Send the responses that are due."""
        outbox, links, selector = connection.outbox, self._links, self._selector
        assert links is not None
        while outbox and connection.relaying is None:
            if links.link(connection.broker.party, connection.party or "").cut:
                self._held_up[connection] = None
                return
            send, leave_ms = outbox[0]
            delay_ms = leave_ms - self._loop.now_ms
            if delay_ms > 0:
                self._loop.call_later(delay_ms, self._relay, connection)
                return
            outbox.popleft()
            if not selector.is_channel_ready(connection.id):
                return
            selector.send(send)
            if not send.completed:
                connection.relaying = send
        if connection.backlog:
            self._serve(connection)

    def _links_changed(self) -> None:
        """Close connections that are reset, and continue those that are no longer blocked."""
        links = self._links
        assert links is not None
        for connection in list(self._connections.values()):
            party, broker_party = connection.party, connection.broker.party
            if party is not None and (links.link(party, broker_party).reset or links.link(broker_party, party).reset):
                self._close(connection, reset=True)
        held_up, self._held_up = self._held_up, {}
        for connection in held_up:
            self._relay(connection)
