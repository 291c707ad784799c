"""Virtual time, and a network on it that delays, loses and breaks (in place of clock and selector)."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pykclient.clock import FOREVER_MS
from pykclient.network import channel_state
from pykclient.network.channel_state import ChannelState
from pykclient.network.network_receive import NetworkReceive
from pykclient.network.network_send import NetworkSend
from pykclient.network.selectable import SocketAddress
from pykclient.protocol.headers import RequestHeader, encode_response, parse_request
from pykclient.protocol.message import Request, Response
from tests.producer.model.brokers import Brokers, Orders, Partition

# What becomes of a request.
DELIVER = "deliver"
LOSE_REQUEST = "lose request"  # and all after it: the connection is silent from here on
LOSE_RESPONSE = "lose response"  # likewise
CUT_EARLY = "cut early"  # the connection breaks before the broker has the request
CUT_LATE = "cut late"  # and after it did what was asked


class Fate(NamedTuple):
    """What becomes of one request, or of one attempt to connect."""

    kind: str = DELIVER
    write_ms: int = 0  # until the last byte has left the client
    there_ms: int = 1
    back_ms: int = 1
    orders: Orders = Orders()


HEALTHY = Fate()


class Simulation:
    """The clock (pykclient.clock.Clock), and what is to happen when."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        #: What a thread that waits lets happen meanwhile; set by the world.
        self.while_waiting: Callable[[int], None] = self.run_until
        #: Called at each look at the clock: other threads may do anything there.
        self.on_look: Callable[[], None] | None = None

    def now_ms(self) -> int:
        if self.on_look is not None:
            self.on_look()
        return self._now_ms

    @property
    def time_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms + 1_700_000_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        self.run_until(self._now_ms + duration_ms)

    def new_condition(self, lock: Any = None) -> threading.Condition:
        return threading.Condition(lock)

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        """The other threads run for a moment; the caller looks again, as after a spurious wakeup."""
        condition.release()
        try:
            self.while_waiting(min(self._now_ms + timeout_ms, FOREVER_MS))
        finally:
            condition.acquire()
        return True

    def later(self, delay_ms: int, function: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self._now_ms + delay_ms, self._count, function))

    @property
    def next_event_ms(self) -> int:
        return self._events[0][0] if self._events else FOREVER_MS

    def run_due(self) -> None:
        while self._events and self._events[0][0] <= self._now_ms:
            heapq.heappop(self._events)[2]()

    def advance_to(self, time_ms: int) -> None:
        """Let time pass up to the next event, or ``time_ms`` if that is sooner."""
        self._now_ms = max(self._now_ms, min(time_ms, self.next_event_ms))
        self.run_due()

    def run_until(self, time_ms: int) -> None:
        while self._now_ms < time_ms:
            self.advance_to(time_ms)


class _Exchange(NamedTuple):
    header: RequestHeader
    request: Request
    fate: Fate
    sent_ms: int


class _Connection:
    def __init__(self, id: str, broker: int) -> None:
        self.id = id
        self.broker = broker
        self.open = True
        self.ready = False
        self.sending: NetworkSend | None = None
        self.deaf = False  # nothing reaches the broker
        self.mute = False  # nothing reaches the client
        self.last_arrival_ms = 0
        self.last_receive_ms = 0
        self.queue: deque[_Exchange] = deque()
        self.busy = False


class SimulatedSelector:
    """Implements pykclient.network.selectable.Selectable. A broker takes one request of a connection at a time."""

    def __init__(self, simulation: Simulation, brokers: Brokers, fates: Iterator[Fate]) -> None:
        self._simulation = simulation
        self._brokers = brokers
        self._fates = fates
        self._connections: dict[str, _Connection] = {}
        self.down: set[int] = set()
        self.woken = False
        #: poll does not let time pass beyond this: something outside of the network is to happen then.
        self.horizon_ms = FOREVER_MS
        #: Until when poll would have waited on, had it not been for the horizon.
        self.asleep_until_ms: int | None = None
        self.progress = 0
        self.on_produce: Callable[[Request], None] = lambda request: None
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.disconnected: dict[str, ChannelState] = {}
        self.connected: list[str] = []
        self._next_sends: list[NetworkSend] = []
        self._next_receives: list[NetworkReceive] = []
        self._next_disconnected: dict[str, ChannelState] = {}
        self._next_connected: list[str] = []
        self.zombies = 0
        #: Requests that may still be written.
        self.outstanding = 0

    # --- the client's side -------------------------------------------------------------------------------------

    def connect(self, id: str, address: SocketAddress, send_buffer: int, receive_buffer: int) -> None:
        assert id not in self._connections, "connected twice"
        self.progress += 1
        broker = self._brokers.broker_at(address.ip)
        fate = next(self._fates)
        if broker in self.down and fate.write_ms == 0:
            raise ConnectionRefusedError("down")
        connection = self._connections[id] = _Connection(id, broker)
        if fate.kind == LOSE_REQUEST:
            return  # neither accepted nor refused
        refused = broker in self.down or fate.kind in (CUT_EARLY, CUT_LATE)

        def complete() -> None:
            if not connection.open:
                return
            if refused or connection.broker in self.down:
                self.break_(connection)
            else:
                connection.ready = True
                self._next_connected.append(id)

        self._simulation.later(fate.there_ms, complete)

    def send(self, send: NetworkSend) -> None:
        connection = self._connections[send.destination_id]
        assert connection.ready, "sent on a connection that is not ready"
        assert connection.sending is None, "sent while another frame was being sent"
        self.progress += 1
        connection.sending = send
        fate = next(self._fates)
        if fate.write_ms == 0:
            self._written(connection, send, b"", fate)
            return
        data = b"".join(bytes(buffer) for buffer in send.pending())
        half = data[: len(data) // 2]
        self._simulation.later(fate.write_ms, lambda: self._written(connection, send, half, fate))

    def _written(self, connection: _Connection, send: NetworkSend, first: bytes, fate: Fate) -> None:
        if not connection.open:
            return
        # The rest is read out of the producer's buffers only now.
        data = first + b"".join(bytes(buffer) for buffer in send.pending())[len(first) :]
        send.advance(send.remaining)
        connection.sending = None
        self._next_sends.append(send)
        if fate.kind == CUT_EARLY:
            self._simulation.later(fate.there_ms, lambda: self.break_(connection))
            return
        if fate.kind == LOSE_REQUEST:
            connection.deaf = True
        header, request = parse_request(data[4:])
        exchange = _Exchange(header, request, fate, self._simulation.time_ms)
        arrival_ms = max(connection.last_arrival_ms, self._simulation.time_ms + fate.there_ms)
        connection.last_arrival_ms = arrival_ms
        self.outstanding += 1
        self._simulation.later(arrival_ms - self._simulation.time_ms, lambda: self._arrived(connection, exchange))

    def poll(self, timeout_ms: int) -> None:
        assert timeout_ms >= 0
        simulation = self._simulation
        deadline_ms = min(simulation.time_ms + timeout_ms, FOREVER_MS)
        simulation.run_due()
        while not (self.woken or self.has_news) and simulation.time_ms < min(deadline_ms, self.horizon_ms):
            simulation.advance_to(min(deadline_ms, self.horizon_ms))
        asleep = not (self.woken or self.has_news) and simulation.time_ms < deadline_ms
        self.asleep_until_ms = deadline_ms if asleep else None
        self.woken = False
        if self.has_news:
            self.progress += 1
        self.completed_sends, self._next_sends = self._next_sends, []
        self.completed_receives, self._next_receives = self._next_receives, []
        self.disconnected, self._next_disconnected = self._next_disconnected, {}
        self.connected, self._next_connected = self._next_connected, []

    @property
    def has_news(self) -> bool:
        return bool(self._next_sends or self._next_receives or self._next_disconnected or self._next_connected)

    def wakeup(self) -> None:
        self.woken = True

    def close_channel(self, id: str) -> None:
        connection = self._connections.pop(id, None)
        if connection is not None:
            connection.open = connection.ready = False
        self._next_disconnected.pop(id, None)
        self._next_receives = [receive for receive in self._next_receives if receive.source != id]
        self._next_sends = [send for send in self._next_sends if send.destination_id != id]
        self._next_connected = [other for other in self._next_connected if other != id]

    def is_channel_ready(self, id: str) -> bool:
        connection = self._connections.get(id)
        return connection is not None and connection.ready

    def mute(self, id: str) -> None: ...

    def unmute(self, id: str) -> None: ...

    def mute_all(self) -> None: ...

    def unmute_all(self) -> None: ...

    def close(self) -> None:
        for id in list(self._connections):
            self.close_channel(id)

    # --- the other side ----------------------------------------------------------------------------------------

    def break_(self, connection: _Connection) -> None:
        """The client sees the connection end. What came before is still received."""
        if connection.open:
            del self._connections[connection.id]
            connection.open = connection.ready = False
            self._next_disconnected[connection.id] = ChannelState(channel_state.READY)

    def break_any(self, number: int) -> None:
        connections = list(self._connections.values())
        if connections:
            self.break_(connections[number % len(connections)])

    def set_down(self, broker: int, down: bool) -> None:
        if not down:
            self.down.discard(broker)
            return
        self.down.add(broker)
        for connection in list(self._connections.values()):
            if connection.broker == broker:
                connection.deaf = True
                self.break_(connection)

    def heal(self) -> None:
        """Silent connections break, and stopped brokers are back."""
        self.down.clear()
        for connection in list(self._connections.values()):
            if connection.deaf or connection.mute or not connection.ready:
                self.break_(connection)

    def _arrived(self, connection: _Connection, exchange: _Exchange) -> None:
        if connection.deaf:
            self.outstanding -= 1
            return
        connection.queue.append(exchange)
        self._serve(connection)

    def _serve(self, connection: _Connection) -> None:
        if connection.busy or not connection.queue:
            return
        exchange = connection.queue.popleft()
        connection.busy = True
        if not connection.open:
            self.zombies += 1

        def may_append(partition: Partition) -> bool:
            # A producer may number anew what was refused. A copy with the old numbers that is still waiting at the
            # broker, on a connection that is gone, must not be written after that: nothing could tell them apart.
            return connection.open or partition.refused_ms < exchange.sent_ms

        self._brokers.handle(
            connection.broker,
            exchange.header,
            exchange.request,
            exchange.fate.orders,
            may_append,
            lambda response: self._answer(connection, exchange, response),
        )

    def _answer(self, connection: _Connection, exchange: _Exchange, response: Response | None) -> None:
        connection.busy = False
        self.outstanding -= 1
        fate = exchange.fate
        if fate.kind == CUT_LATE:
            self.break_(connection)
        elif fate.kind == LOSE_RESPONSE:
            connection.mute = True
        if response is not None and connection.open and not connection.mute:
            frame = encode_response(response, exchange.header.api_version, exchange.header.correlation_id)
            data = frame.getvalue()[4:]
            receive_ms = max(connection.last_receive_ms, self._simulation.time_ms + fate.back_ms)
            connection.last_receive_ms = receive_ms

            def receive() -> None:
                if connection.open:
                    self._next_receives.append(NetworkReceive(connection.id, data))

            self._simulation.later(receive_ms - self._simulation.time_ms, receive)
        self._serve(connection)
