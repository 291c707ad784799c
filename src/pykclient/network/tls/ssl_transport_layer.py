"""A socket with TLS: an engine above the pump that moves its bytes (Java: SslTransportLayer)."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from pykclient.errors import AuthenticationError, SslAuthenticationError
from pykclient.network.failures import SuppressOSErrors, raise_if_of_signal_handler, shown_address
from pykclient.network.frames import Frame, FrameReader, MemoryPool, NetworkSend
from pykclient.network.selectable import SocketAddress
from pykclient.network.tls.ssl_factory import ContextSettings, SslFactory, client_ssl_factory
from pykclient.network.tls.ssl_failures import handshake_failure, text_of, without_tls
from pykclient.network.transport_layer import (
    CLOSED_BY_PEER,
    BytePump,
    FrameStream,
    PlaintextTransportLayer,
    ReadingFrameStream,
    Transports,
    byte_pump,
)
from pykclient.protocol.headers import encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.wire import BytesLike

if TYPE_CHECKING:
    from pykclient.network.proxy import ProxyConfig

#: Buffers from this size on are encrypted where they are. Smaller ones are joined first, because each call makes a TLS
#: record of its own.
_LARGE_BYTES: Final = 64 * 1024


class SslEngine:
    """Decrypts received bytes and encrypts bytes to send, once the handshake is complete.

    After each step, ``output`` has the bytes to send to the peer. Thread: owner.
    """

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Create the client's side for a server's host name, or the server's side if that is None."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        is_server = server_hostname is None
        self._tls = context.wrap_bio(self._incoming, self._outgoing, is_server, server_hostname)
        self.is_complete = False
        self._may_have_more = False  # True if the last read may have left decrypted bytes or whole records behind

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, after the handshake; None if it has sent none."""
        return self._tls.getpeercert(binary_form=True)

    # --- from the peer -----------------------------------------------------------------------------------------------

    def feed(self, received: BytesLike) -> None:
        """Add bytes received from the peer. They are copied."""
        self._incoming.write(received)
        self._may_have_more = True

    def handshake(self) -> bool:
        """Continue the handshake with the bytes so far; return whether it is complete.

        Raises:
            ssl.SSLError: it failed. ``output`` may have an alert that tells the peer why.
        """
        if not self.is_complete:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            self.is_complete = True
        return True

    def read_into(self, target: memoryview) -> int | None:
        """Decrypt into ``target`` until it is full or the bytes so far are used up.

        Return the number of bytes; None if there are none yet, and 0 if the peer has ended its stream.

        Raises:
            ssl.SSLError: the peer's bytes are not valid, or it sent an alert. Nothing was read then.
        """
        tls, incoming = self._tls, self._incoming
        read: Any = tls.read  # returns a number, as it is given a buffer
        filled, size = 0, len(target)
        while filled < size:
            room = size - filled
            try:
                count: int = read(room, target[filled:] if filled else target)
            except ssl.SSLWantReadError:
                self._may_have_more = False
                break
            except ssl.SSLError:
                if filled:
                    break  # the next call fails in the same way, after these bytes were taken
                raise
            if not count:
                return filled
            filled += count
            if count < room and not incoming.pending and not tls.pending():
                # Saves the exception that would tell that there is nothing more.
                self._may_have_more = False
                break
        return filled or None

    @property
    def may_have_more(self) -> bool:
        """True if ``read_into`` may return more without more bytes from the peer."""
        return self._may_have_more

    # --- to the peer -------------------------------------------------------------------------------------------------

    def encrypt(self, buffers: Iterable[BytesLike]) -> bytes:
        """Return the encrypted content of ``buffers``, after the output so far."""
        small: list[BytesLike] = []
        for buffer in buffers:
            if len(buffer) < _LARGE_BYTES:
                small.append(buffer)
                continue
            if small:
                self._write(b"".join(small))
                small = []
            self._write(buffer)
        if small:
            self._write(small[0] if len(small) == 1 else b"".join(small))
        return self._outgoing.read()

    def _write(self, plain: BytesLike) -> None:
        written = self._tls.write(plain)
        while written < len(plain):
            plain = memoryview(plain)[written:]
            written = self._tls.write(plain)

    def output(self) -> bytes:
        """Return the bytes of the handshake or of an alert to send to the peer, and forget them."""
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Return the bytes that tell the peer that the stream has ended; empty without a complete handshake."""
        if not self.is_complete:
            return b""
        # Mostly an error, because the peer has not ended its stream. Nobody waits for that.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    @property
    def cipher(self) -> str | None:
        """The cipher suite, once the handshake is complete."""
        cipher = self._tls.cipher()
        return None if cipher is None else cipher[0]


#: A number that no other protocol's answer has by chance.
_CORRELATION_ID: Final = 0x70796B63
#: The request. It has no client id, as anyone on the network can read it.
REQUEST: Final = encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, None).getvalue()
_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")
#: A response has a few hundred bytes.
_LARGEST_BYTES: Final = 64 * 1024


class ProbedPeers:
    """The peers that a client has probed for plaintext. Each is probed at most once. Thread: io."""

    def __init__(self) -> None:
        self._to_ask: set[str] = set()
        self._asked: set[str] = set()

    def ended_silently(self, peer: str) -> None:
        """Record that ``peer`` closed a connection without a TLS answer."""
        if peer not in self._asked:
            self._to_ask.add(peer)

    def speaks_tls(self, peer: str) -> None:
        """Record that ``peer`` speaks TLS and need not be probed."""
        self._to_ask.discard(peer)
        self._asked.add(peer)

    def take(self, peer: str) -> bool:
        """Return whether the new connection to ``peer`` must probe it."""
        if peer not in self._to_ask:
            return False
        self.speaks_tls(peer)  # or is not asked again, whatever it answers
        return True


class Answer:
    """The first bytes of the answer. Thread: io."""

    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, received: memoryview) -> None:
        self._bytes += received[: _SIZE_AND_CORRELATION_ID.size - len(self._bytes)]

    @property
    def is_complete(self) -> bool:
        return len(self._bytes) == _SIZE_AND_CORRELATION_ID.size

    @property
    def is_of_kafka(self) -> bool:
        """True if a Kafka listener without TLS sent it."""
        if not self.is_complete:
            return False
        size: int
        correlation_id: int
        size, correlation_id = _SIZE_AND_CORRELATION_ID.unpack(self._bytes)
        return 4 <= size <= _LARGEST_BYTES and correlation_id == _CORRELATION_ID


class SslFrameStream(ReadingFrameStream):
    """A ``FrameStream`` over TLS. Thread: io."""

    def __init__(self, transport: SslTransportLayer, reader: FrameReader) -> None:
        super().__init__(transport, reader)
        self._tls = transport

    @property
    def ready(self) -> bool:
        return self._tls.pump.ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self._tls.pump.ready = value

    @property
    def pump(self) -> BytePump:
        return self._tls.pump

    def seal(self, send: NetworkSend) -> NetworkSend:
        """Return the encrypted form of a frame."""
        return self._tls.seal(send)

    def read(self, frames: list[Frame], one: bool) -> int:
        received = super().read(frames, one)
        self._tls.expect(self._reader.missing_bytes)
        return received

    def write(self, send: NetworkSend) -> int:
        return self._tls.write_frame(send)

    def close(self) -> None:
        super().close()
        self._tls.pump.close()


#: The overhead of a TLS record.
_RECORD_OVERHEAD: Final = 17 * 1024
_WITHOUT_ANSWER: Final = " without an answer to the TLS handshake"
#: The alert with which Kafka answers a client that does not speak TLS: internal_error.
_ALERT_FOR_PLAINTEXT: Final = b"\x15\x03\x03\x00\x02\x02\x50"


class SslTransportLayer:
    """A TransportLayer that encrypts.

    Received bytes go from the pump through the engine, and a frame to send goes through the engine to the pump as a
    whole, so that a poller can move encrypted bytes in both directions without knowing it. Thread: io.
    """

    def __init__(
        self,
        plain: PlaintextTransportLayer,
        pump: BytePump,
        engine: SslEngine,
        peer: str,
        host: str | None,
        allowed_ciphers: Collection[str] = (),
        probed: ProbedPeers | None = None,
    ) -> None:
        """Create a transport over ``plain``, whose bytes ``pump`` moves.

        ``peer`` is the peer's address for messages, and ``host`` the name that its certificate must have.
        ``allowed_ciphers``, if there are any, are the only cipher suites that a connection may use. ``probed`` are the
        peers that a client asks whether they use TLS at all; a server has none.
        """
        self._plain = plain
        self.pump = pump
        self._engine = engine
        self._peer = peer
        self._host = host
        self._allowed_ciphers = allowed_ciphers
        self._probed = probed
        #: The answer to a probe whether the peer uses TLS.
        self._answer = Answer() if probed is not None and probed.take(peer) else None
        self.ready = False
        self.sock = plain.sock
        self.finish_connect = plain.finish_connect
        self._output = b"" if self._answer is None else REQUEST  # to be sent before anything else
        self._has_received = False
        self._has_answer = False  # True if the peer has sent something that is TLS
        self._is_confirmed = False  # True if the peer has sent application data, so that it accepts this side
        self._failure: Exception | None = None
        self._sending: NetworkSend | None = None  # the frame whose encrypted form is ``_sealed``
        self._sealed: NetworkSend | None = None

    @property
    def is_connected(self) -> bool:
        return self._plain.is_connected

    @property
    def connect_events(self) -> int:
        return self._plain.connect_events

    @property
    def has_bytes_buffered(self) -> bool:
        return self.ready and self._engine.may_have_more

    @property
    def wants_write(self) -> bool:
        return bool(self._output)

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, after the handshake; None if it has sent none."""
        return self._engine.peer_certificate

    # --- the handshake -----------------------------------------------------------------------------------------------

    def handshake(self) -> None:
        if self._answer is not None:
            self._ask(self._answer)
            return
        try:
            self._shake_hands()
        except (ConnectionResetError, BrokenPipeError) as error:
            raise_if_of_signal_handler(error)
            if self._has_received:
                raise
            if self._probed is not None:
                self._probed.ended_silently(self._peer)
            raise ConnectionResetError(CLOSED_BY_PEER + _WITHOUT_ANSWER) from error

    def _ask(self, answer: Answer) -> None:
        """Continue to ask the peer whether it is a Kafka listener without TLS.

        Raises:
            SslAuthenticationError: it is.
            OSError: it is not, or has ended the connection. The next connection uses TLS again.
        """
        self._flush()
        while not self._output and not answer.is_complete:
            received = self.pump.receive(answer.feed)
            if received is None:
                return
            if not received:
                raise ConnectionResetError(CLOSED_BY_PEER + _WITHOUT_ANSWER)
        if answer.is_of_kafka:
            raise without_tls(self._peer)
        if answer.is_complete:
            raise ConnectionResetError(CLOSED_BY_PEER + _WITHOUT_ANSWER)

    def _shake_hands(self) -> None:
        engine = self._engine
        try:
            while not self.ready:
                is_complete = engine.handshake()
                self._has_answer = self._has_received
                self._output += engine.output()
                self._flush()
                if self._output:
                    return
                if is_complete:
                    self._check_cipher()
                    self.ready = True
                    if self._probed is not None:
                        self._probed.speaks_tls(self._peer)
                    return
                if not self._receive():
                    return
        except ssl.SSLError as error:
            self._output += engine.output()
            if self._host is None and not self._output and not self._has_answer:
                self._output = _ALERT_FOR_PLAINTEXT  # which tells the client what it has connected to
            self._send_alert()
            raise handshake_failure(error, self._peer, self._host, not self._has_answer) from error

    def _receive(self) -> bool:
        """Feed the engine; return whether there was something to feed."""
        received = self.pump.receive(self._engine.feed)
        if received is None:
            return False
        if not received:
            raise ConnectionResetError(CLOSED_BY_PEER)
        self._has_received = True
        return True

    def _flush(self) -> None:
        while self._output:
            sent = self._plain.write((self._output,))
            if sent is None:
                return
            self._output = self._output[sent:]

    def _send_alert(self) -> None:
        """Tell the peer the reason of a failure, if the socket takes it at once."""
        self._output += self._engine.output()
        with SuppressOSErrors():
            self._flush()
        self._output = b""

    def _check_cipher(self) -> None:
        cipher = self._engine.cipher
        if self._allowed_ciphers and cipher not in self._allowed_ciphers:
            raise SslAuthenticationError(
                f"{self._peer} chose the cipher suite {cipher}, which ssl.cipher.suites does not have: change that, "
                "or the broker's ssl.cipher.suites"
            )

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_into(self, target: memoryview) -> int | None:
        if self._failure is not None:
            raise self._failure
        engine, filled, size = self._engine, 0, len(target)
        try:
            while filled < size:
                if engine.may_have_more:
                    count = engine.read_into(target[filled:] if filled else target)
                    if count:
                        filled += count
                        continue
                    if count == 0:
                        return filled
                received = self.pump.receive(engine.feed)
                if received is None:
                    break
                if not received:
                    return filled
        except Exception as error:
            raise_if_of_signal_handler(error)
            failure = self._failure_of(error)
            if not filled:
                raise failure from error
            self._failure = failure
        if filled:
            self._is_confirmed = True
        return filled or None

    def _failure_of(self, error: Exception) -> Exception:
        if not isinstance(error, ssl.SSLError):
            return error
        self._send_alert()
        if not self._is_confirmed:
            # With TLS 1.3, a server examines the client's certificate after the client's handshake is complete.
            return handshake_failure(error, self._peer, self._host, is_first_answer=False)
        return ConnectionResetError(f"the TLS connection to {self._peer} is broken: {text_of(error)}")

    def expect(self, plain_bytes: int) -> None:
        """Tell the pump that about this many more bytes are needed before anything can be done."""
        self.pump.wanted_bytes = max(1, plain_bytes - _RECORD_OVERHEAD)

    # --- writing -----------------------------------------------------------------------------------------------------

    def seal(self, send: NetworkSend) -> NetworkSend:
        """Return the encrypted form of a frame. Each frame is encrypted once, in the order of the first calls."""
        sealed = self._sealed
        if sealed is None or self._sending is not send:
            self._sending = send
            encrypted = self._engine.encrypt(send.unsent())
            sealed = self._sealed = NetworkSend(send.destination_id, [encrypted], send.expect_response)
        return sealed

    def write_frame(self, send: NetworkSend) -> int:
        """Write as much of a frame as the socket accepts; return its size once all is written, else 0."""
        sealed = self.seal(send)
        try:
            self.pump.write(sealed)
        except OSError as error:
            raise_if_of_signal_handler(error)
            self._raise_refusal()
            raise
        if not sealed.completed:
            return 0
        self._sending = self._sealed = None
        size = send.remaining
        send.complete()
        return size

    def _raise_refusal(self) -> None:
        """Raise the reason for which the peer refused this side, if that is why a write failed."""
        if self._is_confirmed:
            return
        try:
            self.read_into(memoryview(bytearray(1)))
        except AuthenticationError:
            raise
        except OSError as error:  # the write's error is as good
            raise_if_of_signal_handler(error)

    def close(self) -> None:
        if self.ready and self.is_connected and self._sealed is None and self._failure is None:
            # The end of the stream is only announced if the socket takes it at once.
            with SuppressOSErrors():
                self._plain.write((self._engine.close_notify(),))
        self.ready = False
        self._plain.close()


class SslTransports(Transports):
    """Creates transports with TLS. Thread: io."""

    def __init__(self, factory: SslFactory, proxy: ProxyConfig | None = None) -> None:
        super().__init__(proxy)
        self._factory = factory
        self._probed = ProbedPeers()

    @classmethod
    def of_client(cls, config: Mapping[str, Any], proxy: ProxyConfig | None = None) -> Self:
        """Return the transports for a client's configuration, through a proxy if there is one.

        Raises:
            ConfigError: it or a file that it names cannot be used.
        """
        return cls(client_ssl_factory(config), proxy)

    @classmethod
    def of_server(cls, context: ssl.SSLContext) -> Self:
        return cls(SslFactory(lambda: ContextSettings(context, ()), ()))

    def new_transport(self, sock: socket.socket, address: SocketAddress | None) -> SslTransportLayer:
        settings = self._factory.current()
        if address is None:
            host = None
            peer = shown_address(*sock.getpeername()[:2])
        else:
            host = _certificate_name(address.host)
            peer = shown_address(address.host, address.port)
        try:
            engine = SslEngine(settings.context, host)
        except (ssl.SSLError, ValueError) as error:  # such as a host name that is no name
            raise OSError(f"TLS with {peer} cannot begin: {error}") from error
        plain = self._plain(sock, address)
        probed = None if address is None else self._probed
        return SslTransportLayer(plain, byte_pump(plain), engine, peer, host, settings.allowed_ciphers, probed)

    def new_stream(
        self, transport: Any, max_receive_size: int, memory_pool: MemoryPool, first_limit: int | None
    ) -> FrameStream:
        return SslFrameStream(transport, FrameReader(max_receive_size, memory_pool, first_limit))


def _certificate_name(host: str) -> str:
    """Return the name that the certificate of a host must have: no trailing dot, and no zone of an IPv6 address."""
    return host.partition("%")[0].rstrip(".") if ":" in host else host.rstrip(".")
