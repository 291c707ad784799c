"""Brokers' listeners, on real sockets and in a memory network (Java: SocketServer, Acceptor)."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.selector import Selector, SelectorConfig
from pykclient.testing.broker import Broker
from pykclient.testing.config import ClusterConfig
from pykclient.testing.delegation_tokens import DelegationTokens
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.memory_network import MemoryNetwork, MemorySelector, MemorySocket
from pykclient.testing.server.listener_channel_builder import ListenerChannelBuilder
from pykclient.testing.server.processor import Processor
from pykclient.types import Node


class MemoryServer:
    """A processor for each broker, on the network that brokers and simulated clients use.

    Thread: loop.
    """

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._processors: dict[int, Processor] = {}

    def open(self, broker: Broker) -> None:
        """Let peers connect to a broker at its node's address."""

        def schedule_poll() -> None:
            broker.loop.call_soon(processor.poll, 0)

        def accept(sock: MemorySocket) -> None:
            processor.accept(broker, sock, sock.host, sock.remote_party)

        selector = MemorySelector(self._network, broker.party, on_news=schedule_poll)
        processor = Processor(broker.loop, selector, broker.log_context)
        self._network.listen(broker.node.host, broker.node.port, broker.party, accept)
        self._processors[broker.id] = processor

    def close_broker(self, broker: Broker, *, reset: bool) -> None:
        """Refuse new connections and close the others; with ``reset``, as if the process had died."""
        processor = self._processors.pop(broker.id, None)
        if processor is not None:
            self._network.unlisten(broker.node.host, broker.node.port)
            processor.close_connections(broker, reset=reset)

    def resume(self, broker: Broker) -> None:
        """Handle the requests that arrived while the broker was paused."""
        processor = self._processors.get(broker.id)
        if processor is not None:
            processor.serve_all(broker)


#: Connections that the system accepts ahead of us. A client retries one too many after a second.
_LISTEN_BACKLOG: Final = 1024

#: The wait before the next attempt when the system has run out of file descriptors.
_REST_S: Final = 0.1


class Acceptor:
    """Accepts connections for all brokers of a cluster.

    It has a thread of its own, so that a busy cluster still accepts connections, and the cluster's thread watches only
    the clients' sockets. Thread: any.
    """

    def __init__(self, hand_over: Callable[[int, socket.socket], None]) -> None:
        """Prepare the acceptor. ``hand_over`` gets the listener's port and the connection's socket."""
        self._hand_over = hand_over
        self._lock = threading.Lock()  # guards: _listeners, _selector's registrations
        self._listeners: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pykclient-cluster-acceptor", daemon=True)
        self._log = LogContext("[Acceptor] ").logger(__name__)

    def open(self, port: int, listener: socket.socket) -> None:
        """Accept connections on ``listener``, a listening socket."""
        if not self._thread.is_alive():
            self._thread.start()
        listener.setblocking(False)
        with self._lock:
            self._listeners[port] = listener
            self._selector.register(listener, selectors.EVENT_READ, port)
        self._wake()

    def close_listener(self, port: int) -> None:
        """Stop accepting connections on a port; later connections are refused."""
        with self._lock:
            listener = self._listeners.pop(port, None)
            if listener is not None:
                self._selector.unregister(listener)
                # Closing is not enough while a forked child still has its copy.
                with contextlib.suppress(OSError):  # some systems do not do this to listeners
                    listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def close(self) -> None:
        """Close all listeners and end the thread."""
        self._stopping.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for port in list(self._listeners):
            self.close_listener(port)
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def abandon(self) -> None:
        """Discard all sockets in a forked child, without locks and without undoing registrations."""
        for listener in list(self._listeners.values()):
            listener.close()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _wake(self) -> None:
        self._wake_writer.send(b"\0")

    def _run(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select():
                if key.data is None:
                    self._wake_reader.recv(4096)
                else:
                    self._accept(key.data)

    def _accept(self, port: int) -> None:
        with self._lock:
            listener = self._listeners.get(port)
            if listener is None:
                return
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return  # the client has disconnected already
            except OSError as error:
                self._log.warning("Accepting a connection at port %d failed: %s", port, error)
                accepted = None
        if accepted is None:
            self._stopping.wait(_REST_S)
        else:
            self._hand_over(port, accepted)


@dataclass(slots=True)
class _Listener:
    """A port of a broker, with the brokers' ``endpoints`` to advertise on it. Thread: loop."""

    name: str
    _family: socket.AddressFamily
    _host: str
    port: int
    endpoints: Mapping[int, Node] | None = None

    def bound_socket(self) -> socket.socket:
        """Return a bound socket that does not listen yet; this also chooses the port if none is configured."""
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            # Old connections of a stopped broker may linger on its port, where nothing listens.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, self.port))
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen at {self._host}:{self.port}: {error.strerror}") from error
        self.port = sock.getsockname()[1]
        return sock


class SocketServer:
    """All brokers' TCP listeners and connections: one acceptor, and one processor on one selector.

    ``bind`` chooses a broker's port. The port belongs to the broker until ``close``; while the broker is down,
    connections are refused. A broker behind a proxy has a second port for the proxy, which advertises the proxies'
    addresses instead of the brokers'. Thread: loop, except for ``wakeup``.
    """

    def __init__(self, config: ClusterConfig, loop: EventLoop) -> None:
        self._config = config
        self._loop = loop
        self._nodes: dict[str, dict[int, Node]] = {name: {} for name in config.listeners}
        settings = config.broker_config
        log_context = LogContext("[SocketServer] ")
        self._selector = Selector(
            SelectorConfig(
                max_receive_size=settings["socket.request.max.bytes"],
                connections_max_idle_ms=settings["connections.max.idle.ms"],
                failed_authentication_delay_ms=settings["connection.failed.authentication.delay.ms"],
                metrics_group_prefix="socket-server",
                metrics_per_connection=False,
            ),
            Metrics(),
            loop.clock,
            log_context,
            ListenerChannelBuilder(config, loop, self._listener_of, self._delegation_tokens),
        )
        self._log_context = log_context
        self._processor: Processor | None = None
        self._proxied = {id: Node(id, host, port, config.racks.get(id)) for id, (host, port) in config.proxies.items()}
        self._listeners: dict[int, list[_Listener]] = {}  # by broker
        #: By port; bound but not listening, so that nobody else gets the port.
        self._reserved: dict[int, socket.socket] = {}
        self._open: dict[int, tuple[Broker, _Listener]] = {}  # by port
        self._accepted: deque[tuple[int, socket.socket]] = deque()  # filled by the acceptor's thread
        self._acceptor = Acceptor(self._hand_over)
        self._closed = False

    # --- listeners ---------------------------------------------------------------------------------------------------

    def bind(self, broker_ids: Sequence[int]) -> dict[int, int]:
        """Reserve a port for each broker, from the configured one on or any; return the ports by broker.

        Raises:
            OSError: a port is in use.
        """
        host, first_port = self._config.host, self._config.port
        try:
            found = socket.getaddrinfo(host, first_port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen at {host!r}: {error.strerror}") from error
        # IPv4 if a name has both kinds of addresses, because most clients try that first.
        family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        first_name, *other_names = self._config.listeners
        ip = str(address[0])
        for index, broker_id in enumerate(broker_ids):
            first = _Listener(first_name, family, ip, first_port + index if first_port else 0)
            self._listeners[broker_id] = [first]
            for name in other_names:
                self._listeners[broker_id].append(_Listener(name, family, ip, 0, self._nodes[name]))
            if broker_id in self._proxied:
                self._listeners[broker_id].append(_Listener(first_name, family, ip, 0, self._proxied))
            for listener in self._listeners[broker_id]:
                self._reserve(listener)
                if listener.endpoints is not self._proxied:
                    host = self._config.advertised_host.format(id=broker_id)
                    node = Node(broker_id, host, listener.port, self._config.racks.get(broker_id))
                    self._nodes[listener.name][broker_id] = node
        return {broker_id: listeners[0].port for broker_id, listeners in self._listeners.items()}

    def nodes(self, listener: str) -> Mapping[int, Node]:
        """Return the brokers by id, with the addresses of a listener. Thread: any."""
        return self._nodes[listener]

    def _listener_of(self, port: int) -> str | None:
        """Return the name of the listener at a port; None if it has just been closed."""
        found = self._open.get(port)
        return None if found is None else found[1].name

    def _delegation_tokens(self) -> DelegationTokens | None:
        """Return the cluster's delegation tokens; None if no broker listens any more."""
        return next((broker.cluster.delegation_tokens for broker, _ in self._open.values()), None)

    def port_behind_proxy(self, broker_id: int) -> int | None:
        """Return the second port of a broker; None if it has no proxy."""
        return self._listeners[broker_id][-1].port if broker_id in self._proxied else None

    def _reserve(self, listener: _Listener) -> None:
        sock = listener.bound_socket()
        self._reserved[listener.port] = sock

    def open(self, broker: Broker) -> None:
        """Listen on a broker's ports."""
        if self._processor is None:
            self._processor = Processor(self._loop, self._selector, self._log_context, broker.cluster.links)
        for listener in self._listeners[broker.id]:
            sock = self._reserved.pop(listener.port)
            sock.listen(_LISTEN_BACKLOG)
            self._open[listener.port] = (broker, listener)
            self._acceptor.open(listener.port, sock)

    def close_broker(self, broker: Broker, *, reset: bool) -> None:
        """Refuse new connections to a broker and close the others; with ``reset``, as if its process had died."""
        listeners = [listener for listener in self._listeners[broker.id] if self._open.pop(listener.port, None)]
        if not listeners:
            return
        for listener in listeners:
            self._acceptor.close_listener(listener.port)
        self._configure_new_connections()
        assert self._processor is not None
        self._processor.close_connections(broker, reset=reset)
        if not self._closed:
            for listener in listeners:
                self._reserve(listener)

    def resume(self, broker: Broker) -> None:
        """Handle the requests that arrived while the broker was paused."""
        if self._processor is not None:
            self._processor.serve_all(broker)

    def close(self) -> None:
        """Close all connections and listeners, on the loop's thread or after it has ended."""
        if self._closed:
            return
        self._closed = True
        self._acceptor.close()
        while self._accepted:
            self._accepted.popleft()[1].close()
        self._selector.close()
        for sock in self._reserved.values():
            sock.close()
        self._reserved.clear()

    def abandon(self) -> None:
        """Discard all sockets in a forked child. The parent keeps them, so peers notice nothing. Thread: any."""
        self._closed = True
        self._acceptor.abandon()
        self._selector.abandon()
        for sock in (*(sock for _, sock in self._accepted), *self._reserved.values()):
            sock.close()

    # --- connections -------------------------------------------------------------------------------------------------

    def _hand_over(self, port: int, sock: socket.socket) -> None:
        """Thread: acceptor."""
        self._accepted.append((port, sock))
        self._selector.wakeup()

    def _configure_new_connections(self) -> None:
        while self._accepted:
            port, sock = self._accepted.popleft()
            found = self._open.get(port)
            try:
                host = sock.getpeername()[0]
            except OSError:
                found = None  # disconnected already
            if found is None or self._processor is None:
                sock.close()
            else:
                broker, listener = found
                security = self._config.listeners[listener.name]
                self._processor.accept(
                    broker,
                    sock,
                    host,
                    endpoints=listener.endpoints,
                    uses_sasl=security.uses_sasl,
                    has_principal=security.has_principals,
                )

    def poll(self, timeout_ms: int) -> None:
        """Do the I/O that is possible; wait at most ``timeout_ms`` for some."""
        if self._accepted:
            self._configure_new_connections()
        if self._processor is None:
            self._selector.poll(timeout_ms)
        else:
            self._processor.poll(timeout_ms)
        if self._accepted:
            self._configure_new_connections()

    def wakeup(self) -> None:
        """End the current poll, or the next one. Thread: any."""
        self._selector.wakeup()
