"""A connection: its transport, its authenticator, a frame being sent, and frames received (Java: KafkaChannel)."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from operator import attrgetter

from pykclient.errors import AuthenticationError, SslAuthenticationError
from pykclient.network import channel_state
from pykclient.network.authenticator import Authenticator, Session
from pykclient.network.channel_state import ChannelState
from pykclient.network.client_request import RepeatableRequest, Repetitions
from pykclient.network.frames import Frame, NetworkSend, TlsResponseError
from pykclient.network.transport_layer import FrameStream, PlaintextTransportLayer, TransportLayer

_NOT_CONNECTED = ChannelState(channel_state.NOT_CONNECTED)


class Traffic:
    """The traffic of one connection in total, as plain integers for the hot path.

    ``request_max`` is the largest request since the last publication, and ``_published`` what was published until then.
    Thread: io; any thread may read it.
    """

    def __init__(self) -> None:
        self.bytes_sent = self.bytes_received = self.io_count = 0
        self.requests = self.request_bytes = self.request_max = self.responses = 0
        self._published = (0,) * len(_TOTALS)

    def add(self, other: Traffic) -> None:
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.io_count += other.io_count
        self.requests += other.requests
        self.request_bytes += other.request_bytes
        self.request_max = max(self.request_max, other.request_max)
        self.responses += other.responses

    def take_unpublished(self) -> Traffic | None:
        """Return the traffic since the last call; None if there is none.

        The caller holds the lock of publications. The I/O thread may count meanwhile: the next call returns the rest.
        """
        totals = _totals_of(self)
        before, self._published = self._published, totals
        if totals == before:
            return None
        since = Traffic()
        for name, total, published in zip(_TOTALS, totals, before, strict=True):
            setattr(since, name, total - published)
        since.request_max, self.request_max = self.request_max, 0
        return since


_TOTALS = ("bytes_received", "bytes_sent", "io_count", "request_bytes", "requests", "responses")
_totals_of = attrgetter(*_TOTALS)


class KafkaChannel:
    """The state and the steps of one connection, driven by the selector. Thread: io."""

    traffic: Traffic  # the selector's counters for this connection

    def __init__(self, id: str, transport: TransportLayer, authenticator: Authenticator, stream: FrameStream) -> None:
        self.id = id
        self.state = _NOT_CONNECTED
        self.ready = False  # connected and authenticated; a plain attribute because every request reads it
        self.muted = False
        self.registered = 0  # the events that the selector watches, for its own use
        #: The time of the last use, for the selector's expiry of idle connections.
        self.used_ms = 0
        self.send: NetworkSend | None = None  # the frame being sent: one at a time
        self.stream = stream
        self.pump = stream.pump  # a plain attribute for the poller
        #: True for a plain socket: nothing but the stream holds bytes back, and only frames are written.
        self.is_plain = type(transport) is PlaintextTransportLayer
        self.sock = transport.sock
        self._transport = transport
        self._authenticator = authenticator
        self._remote_address: str | None = None
        self._auth_send: NetworkSend | None = None
        self._first_frame: Frame | None = None
        self.reauthenticate_ms: int | None = None  # a plain attribute, too
        self.reauthentication_start_ms: int | None = None  # set from the first one on
        #: Frames for the application that arrived while a connection in use authenticated again.
        self.received_meanwhile: list[Frame] = []

    # --- what the selector asks ------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._transport.is_connected

    @property
    def has_bytes_buffered(self) -> bool:
        """True if a read can make progress although the socket is not readable."""
        return self._transport.has_bytes_buffered or self.stream.has_frame

    @property
    def wants_write(self) -> bool:
        """True if the transport itself has something to write."""
        return self._transport.wants_write

    def interest(self) -> int:
        """The events to wait for, as a mask of ``selectors``."""
        if not self._transport.is_connected:
            return self._transport.connect_events
        events = 0 if self.muted else selectors.EVENT_READ
        if self._transport.wants_write or self._auth_send is not None or (self.ready and self.send is not None):
            events |= selectors.EVENT_WRITE
        return events

    def describe(self) -> str:
        """Return the peer's address for messages."""
        return self._remote_address or self.id

    # --- connecting ------------------------------------------------------------------------------------------------

    def set_remote_address(self, host: str, port: int) -> None:
        self._remote_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.state = self.state.with_details(self._remote_address)

    def finish_connect(self) -> bool:
        """Return whether the connection is established.

        Raises:
            OSError: the connection failed.
        """
        if not self._transport.finish_connect():
            return False
        self._connected()
        return True

    def prepare(self, now_ms: int) -> None:
        """Continue handshake and authentication as far as possible.

        Raises:
            AuthenticationError, OSError: they failed.
        """
        if self.state.state == channel_state.NOT_CONNECTED:
            # A server's new connection. Its socket tells when the client has begun the handshake.
            self._connected()
            return
        try:
            if not self._transport.ready:
                self._transport.handshake()
            if self._transport.ready and not self._authenticator.complete:
                self._authenticate(now_ms)
        except AuthenticationError as error:
            self.fail_authentication(error)
            raise
        self._maybe_ready()

    def fail_authentication(self, error: AuthenticationError) -> None:
        """Note that the peer refused this side, which it may do when the channel is ready already."""
        if self.state.state != channel_state.AUTHENTICATION_FAILED:
            self.state = self.state.move_to(channel_state.AUTHENTICATION_FAILED, error)

    def _connected(self) -> None:
        self._maybe_ready()
        if not self.ready:
            self.state = self.state.move_to(channel_state.AUTHENTICATE)

    def _maybe_ready(self) -> None:
        if self._transport.ready and self._authenticator.complete and self._auth_send is None:
            self.ready = self.stream.ready = True
            self.reauthenticate_ms = self._authenticator.reauthenticate_ms
            if self.state.state != channel_state.READY:  # else it has authenticated again
                self.state = self.state.move_to(channel_state.READY)

    def start_authentication(self, resume: Callable[[], object]) -> None:
        """Set the callback, from any thread, for when ``prepare`` can go on without anything from the peer."""
        self._authenticator.start(resume)

    def begin_reauthentication(self, now_ms: int, first_frame: Frame | None = None) -> None:
        """Make the connection authenticate again (KIP-368). ``prepare`` does that; until then it is not ``ready``.

        ``first_frame`` is the one with which the peer has begun it.
        """
        self.ready = self.stream.ready = False
        self.reauthenticate_ms = None
        self.reauthentication_start_ms = now_ms
        self._first_frame = first_frame
        self._authenticator.begin_reauthentication()

    def begin_repeating(self, request: RepeatableRequest) -> bool:
        """Let a poller send a request again each time its response comes; return False if it cannot now."""
        is_free = self.ready and self.send is None and not self.muted and self.reauthenticate_ms is None
        return is_free and self.is_plain and self.stream.begin_repeating(request)

    def end_repeating(self) -> Repetitions:
        """Stop sending it, and count the bytes that were sent."""
        done = Repetitions(*self.stream.end_repeating())
        if done.repeats:
            traffic = self.traffic
            traffic.bytes_sent += done.size_bytes
            traffic.io_count += 2 * done.repeats - 1  # the selector has counted one read
            traffic.requests += done.repeats
            traffic.responses += done.repeats
            traffic.request_bytes += done.size_bytes
            traffic.request_max = max(traffic.request_max, done.size_bytes // done.repeats)
        return done

    @property
    def session(self) -> Session | None:
        """The client's session, if this is a server's connection with SASL."""
        return self._authenticator.session

    def _authenticate(self, now_ms: int) -> None:
        authenticator = self._authenticator
        first, self._first_frame = self._first_frame, None
        if first is not None:
            authenticator.receive(first, now_ms)
        while True:
            if not self.send_authentication_frames(now_ms) or authenticator.complete:
                return
            frames: list[Frame] = []
            self.read(frames, one=True)  # later frames may already be for the application
            if not frames:
                return
            if not authenticator.receive(frames[0], now_ms):
                self.received_meanwhile.append(frames[0])

    def send_authentication_frames(self, now_ms: int) -> bool:
        """Send the authenticator's frames; return whether all are sent."""
        if not self._transport.ready:
            return False
        while True:
            if self._auth_send is None:
                buffers = self._authenticator.next_frame(now_ms)
                if buffers is None:
                    return True
                self._auth_send = NetworkSend(self.id, buffers)
            self.stream.write(self._auth_send)
            if not self._auth_send.completed:
                return False
            self._auth_send = None

    # --- frames ----------------------------------------------------------------------------------------------------

    def read(self, frames: list[Frame], one: bool) -> int:
        """Append the received frames, as ``FrameStream.read`` does.

        Raises:
            SslAuthenticationError: the peer speaks TLS, and this side does not.
        """
        try:
            return self.stream.read(frames, one)
        except TlsResponseError as error:
            raise self.speaks_tls(error) from error

    def speaks_tls(self, error: TlsResponseError) -> SslAuthenticationError:
        """Return the error of a connection without TLS to a peer that uses it."""
        return SslAuthenticationError(
            f"the listener at {self.describe()} speaks TLS ({error}), but security.protocol is PLAINTEXT or "
            "SASL_PLAINTEXT: set it to SSL or SASL_SSL, or use the port of a listener without TLS"
        )

    def close(self) -> None:
        self.ready = self.stream.ready = False
        self.stream.close()
        self._authenticator.close()
        self._transport.close()

    def __repr__(self) -> str:
        return f"KafkaChannel({self.id}, {self.state.state})"
