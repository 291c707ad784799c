"""Brokers' listeners on real sockets (Java: SocketServer, Acceptor)."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.selector import Selector, SelectorConfig
from pykclient.testing.config import ClusterConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.server.processor import Processor

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.link_policy import LinkPolicy

#: Connections that the system accepts before we do.
_LISTEN_BACKLOG: Final = 128

#: How long to wait before the next try when the system has no more file descriptors.
_REST_S: Final = 0.1


class Acceptor:
    """Accepts connections for all brokers of a cluster and hands them over.

    A thread of its own, so that a cluster that is busy still takes connections, and so that the sockets of clients are
    all that the cluster's thread looks at. Thread: any.
    """

    def __init__(self, hand_over: Callable[[int, socket.socket], None]) -> None:
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

    def open(self, broker_id: int, listener: socket.socket) -> None:
        """Accept what comes to ``listener``, a listening socket."""
        if not self._thread.is_alive():
            self._thread.start()
        listener.setblocking(False)
        with self._lock:
            self._listeners[broker_id] = listener
            self._selector.register(listener, selectors.EVENT_READ, broker_id)
        self._wake()

    def close_listener(self, broker_id: int) -> None:
        """Accept nothing for a broker any more; connections that are made after this are refused."""
        with self._lock:
            listener = self._listeners.pop(broker_id, None)
            if listener is not None:
                self._selector.unregister(listener)
                listener.close()

    def close(self) -> None:
        """Close all listeners and end the thread."""
        self._stopping.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for broker_id in list(self._listeners):
            self.close_listener(broker_id)
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

    def _accept(self, broker_id: int) -> None:
        with self._lock:
            listener = self._listeners.get(broker_id)
            if listener is None:
                return
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return  # whoever it was has left again
            except OSError as error:
                self._log.warning("Accepting a connection for broker %d failed: %s", broker_id, error)
                accepted = None
        if accepted is None:
            self._stopping.wait(_REST_S)
        else:
            self._hand_over(broker_id, accepted)


class SocketServer:
    """All brokers' TCP listeners and connections: one acceptor, and one processor on one selector.

    A broker's port is chosen by ``bind`` and is its own until ``close``, whether the broker runs or not: while it does
    not, connections are refused. Thread: loop, but for ``wakeup``.
    """

    def __init__(self, config: ClusterConfig, loop: EventLoop) -> None:
        self._config = config
        self._loop = loop
        settings = config.broker_config
        log_context = LogContext("[SocketServer] ")
        self._selector = Selector(
            SelectorConfig(
                max_receive_size=settings["socket.request.max.bytes"],
                connections_max_idle_ms=settings["connections.max.idle.ms"],
                metrics_group_prefix="socket-server",
                metrics_per_connection=False,
            ),
            Metrics(),
            loop.clock,
            log_context,
        )
        self._log_context = log_context
        self._processor: Processor | None = None
        self._addresses: dict[int, tuple[socket.AddressFamily, str, int]] = {}
        self._reserved: dict[int, socket.socket] = {}  # bound, not listening: nobody else gets the port
        self._brokers: dict[int, Broker] = {}
        self._accepted: deque[tuple[int, socket.socket]] = deque()  # filled by the acceptor's thread
        self._acceptor = Acceptor(self._hand_over)
        self._closed = False

    # --- listeners ---------------------------------------------------------------------------------------------------

    def bind(self, broker_ids: Sequence[int]) -> dict[int, int]:
        """Take a port for each broker: the configured one and those after it, or any; ports by broker.

        Raises OSError where one is in use.
        """
        host, first_port = self._config.host, self._config.port
        family, _, _, _, address = socket.getaddrinfo(host, first_port, type=socket.SOCK_STREAM)[0]
        for index, broker_id in enumerate(broker_ids):
            port = first_port + index if first_port else 0
            sock = _bound_socket(family, str(address[0]), port)
            self._reserved[broker_id] = sock
            self._addresses[broker_id] = (family, str(address[0]), sock.getsockname()[1])
        return {broker_id: port for broker_id, (_, _, port) in self._addresses.items()}

    def open(self, broker: Broker) -> None:
        """Listen at a broker's port."""
        if self._processor is None:
            self._processor = self._new_processor(broker.faults.links)
        listener = self._reserved.pop(broker.id)
        listener.listen(_LISTEN_BACKLOG)
        self._brokers[broker.id] = broker
        self._acceptor.open(broker.id, listener)

    def _new_processor(self, links: LinkPolicy) -> Processor:
        return Processor(self._loop, self._selector, self._log_context, links)

    def close_broker(self, broker: Broker, *, reset: bool) -> None:
        """Refuse new connections to a broker and close the others; with ``reset`` as if its process had died."""
        if self._brokers.pop(broker.id, None) is None:
            return
        self._acceptor.close_listener(broker.id)
        self._configure_new_connections()
        assert self._processor is not None
        self._processor.close_connections(broker, reset=reset)
        if not self._closed:
            self._reserved[broker.id] = _bound_socket(*self._addresses[broker.id])

    def pause(self, broker: Broker) -> None:
        """Nothing to do: the processor serves no request of a broker that is paused, and so soon stops reading."""

    def resume(self, broker: Broker) -> None:
        """Serve what has come in meanwhile."""
        if self._processor is not None:
            self._processor.serve_all(broker)

    def close(self) -> None:
        """Close all connections and listeners; the loop's thread must have ended."""
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

    # --- connections -------------------------------------------------------------------------------------------------

    def _hand_over(self, broker_id: int, sock: socket.socket) -> None:
        """Thread: acceptor."""
        self._accepted.append((broker_id, sock))
        self._selector.wakeup()

    def _configure_new_connections(self) -> None:
        while self._accepted:
            broker_id, sock = self._accepted.popleft()
            broker = self._brokers.get(broker_id)
            try:
                host = sock.getpeername()[0]
            except OSError:
                broker = None  # it has left already
            if broker is None or self._processor is None:
                sock.close()
            else:
                self._processor.accept(broker, sock, host)

    def poll(self, timeout_ms: int) -> None:
        """Do what I/O can be done, waiting at most ``timeout_ms`` for some."""
        if self._accepted:
            self._configure_new_connections()
        if self._processor is None:
            self._selector.poll(timeout_ms)
        else:
            self._processor.poll(timeout_ms)
        if self._accepted:
            self._configure_new_connections()

    def wakeup(self) -> None:
        """End the present poll, or the next one at once. Thread: any."""
        self._selector.wakeup()


def _bound_socket(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of a broker that has stopped may linger on its port; nobody listens there.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from error
    return sock
