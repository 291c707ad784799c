"""Many non-blocking connections with one wait (Java: Selector). Clients and servers use the same class.

The poller waits for sockets, the metrics count their traffic, and the selector connects, reads, writes and closes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import random
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from pykclient.clock import FOREVER_MS, HERE, Clock, is_interrupting
from pykclient.errors import AuthenticationError, IllegalArgumentError, IllegalStateError, ProtocolError
from pykclient.implementation import use_compiled
from pykclient.log_context import LogContext
from pykclient.metrics import (
    Avg,
    CumulativeSum,
    Max,
    Meter,
    MetricConfig,
    MetricName,
    Metrics,
    Rate,
    Sensor,
    Tally,
)
from pykclient.network import channel_state
from pykclient.network.authenticator import Session
from pykclient.network.channel_builders import ChannelBuilder, plaintext_channel_builder
from pykclient.network.channel_state import ChannelState
from pykclient.network.client_request import RepeatableRequest, Repetitions
from pykclient.network.failures import SuppressOSErrors, raise_if_of_signal_handler
from pykclient.network.frames import (
    UNLIMITED,
    UNLIMITED_SIZE,
    Frame,
    MemoryPool,
    NetworkReceive,
    NetworkSend,
    TlsResponseError,
)
from pykclient.network.kafka_channel import KafkaChannel, Traffic
from pykclient.network.selectable import USE_DEFAULT_BUFFER_SIZE, SocketAddress

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: The event of a ``wakeup``.
WAKEUP: Final = (None, READ)


class Poller(Protocol):
    """Waits for the sockets of channels. Thread: io, except for ``wakeup``."""

    def register(self, channel: KafkaChannel, events: int) -> None:
        """Watch a channel's socket for ``events``, a mask of READ and WRITE."""

    def modify(self, channel: KafkaChannel, events: int) -> None: ...

    def unregister(self, channel: KafkaChannel) -> None: ...

    def write_later(self, channel: KafkaChannel, ends_wait: bool) -> bool:
        """Return whether the next ``select`` will write the channel's frame before it waits.

        It then reports a WRITE event. If ``ends_wait``, it will not wait, because there will be no response to end the
        wait.
        """

    def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
        """Return the ready channels with their events; wait at most ``timeout_ms`` for an event or a ``wakeup``.

        A ``wakeup`` is reported as an event without a channel.
        """

    def fileno(self) -> int:
        """Return a descriptor that is readable while ``select`` would return at once, including after ``wakeup``.

        From the first call on, a ``wakeup`` always makes it readable.

        Raises:
            io.UnsupportedOperation: the system has no such descriptor.
        """

    @property
    def has_work(self) -> bool:
        """True if ``select`` has work although the descriptor is not readable."""

    def wakeup(self) -> None:
        """End the current wait, or prevent the next one. Thread: any."""

    def close(self) -> None: ...


class SelectorsPoller:
    """A ``Poller`` based on the standard library. It does no reads and writes.

    Thread: io, except for ``wakeup``.
    """

    #: ``has_work``: it never writes later or reads ahead.
    has_work = False

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, READ, None)
        self._woken = False
        self._waiting = False  # True if waking the io thread takes a byte
        self._is_watched = False  # True if the wait is someone else's, so that waking always takes a byte

    def register(self, channel: KafkaChannel, events: int) -> None:
        self._selector.register(channel.sock, events, channel)

    def modify(self, channel: KafkaChannel, events: int) -> None:
        self._selector.modify(channel.sock, events, channel)

    def unregister(self, channel: KafkaChannel) -> None:
        self._selector.unregister(channel.sock)

    def write_later(self, channel: KafkaChannel, ends_wait: bool) -> bool:  # noqa: ARG002 - the seam's signature
        return False

    def fileno(self) -> int:
        if not hasattr(self._selector, "fileno"):  # poll and select have no descriptor of their own
            raise io.UnsupportedOperation(
                f"{type(self._selector).__name__} has no descriptor that an event loop can watch: "
                "this needs a system with epoll or kqueue"
            )
        self._is_watched = True
        descriptor: int = self._selector.fileno()
        return descriptor

    def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
        if timeout_ms <= 0:
            events = self._selector.select(0)
        else:
            # The order of the two statements, and the reverse order in ``wakeup``, ensure that one of the threads sees
            # the other's flag. A byte may be written in vain; then the next call returns at once.
            self._waiting = True
            try:
                events = self._selector.select(0 if self._woken else timeout_ms / 1000)
            finally:
                self._waiting = False
        found: list[tuple[KafkaChannel | None, int]] = []
        for key, mask in events:
            if key.data is not None:
                found.append((key.data, mask))
            else:
                self._drain_wakeups()
        if self._woken:
            # A wakeup after this prevents the next wait.
            self._woken = False
            found.append(WAKEUP)
        return found

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)

    def wakeup(self) -> None:
        if self._woken:
            return
        self._woken = True
        if not self._waiting and not self._is_watched:
            return  # the io thread checks the flag before it waits
        # If the pipe is full, the thread will wake anyway. If it is closed, there is no thread to wake.
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def close(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()


def new_poller() -> Poller:
    """Return a poller. The compiled form returns one that also reads and writes, where the system has epoll.

    It does so in the same section without the GIL as the wait.
    """
    return SelectorsPoller()


#: Polls publish the counts this often. Each second, this would be a quarter of an idle client's work. Whoever reads a
#: metric publishes, too.
FLUSH_INTERVAL_MS: Final = 3_000


class _TotalNs(CumulativeSum):
    """A sum of milliseconds, in nanoseconds. Thread: owner."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        return super().measure(config, now_ms) * 1e6


#: Meters of a connection's traffic: the sensor, the beginning of the metrics' names, what they count, and the counter.
_METERS: Final = (
    ("requests-sent", "request", "requests sent", "requests"),
    ("bytes-sent", "outgoing-byte", "bytes sent", "bytes_sent"),
    ("responses-received", "response", "responses received", "responses"),
    ("bytes-received", "incoming-byte", "bytes received", "bytes_received"),
)
_METER_OF_IO: Final = ("bytes-sent-received", "network-io", "reads and writes on all connections", "io_count")


class _TrafficSensors:
    """The sensors of one connection, or of all connections together."""

    def __init__(self, owner: SelectorMetrics, prefix: str, suffix: str, group: str, tags: Mapping[str, str]) -> None:
        meters = _METERS if prefix else (*_METERS, _METER_OF_IO)
        self._meters = [
            (counter, owner.meter(f"{prefix}{sensor}{suffix}", base, what, group, tags))
            for sensor, base, what, counter in meters
        ]
        what = "size of the requests sent, in bytes"
        self._request_size = owner.extremes(f"{prefix}request-size{suffix}", "request-size", what, group, tags)

    def publish(self, traffic: Traffic, now_ms: int) -> None:
        for counter, sensor in self._meters:
            if count := getattr(traffic, counter):
                sensor.record(count, now_ms)
        if traffic.requests:
            sizes = Tally()
            sizes.count, sizes.total, sizes.largest = traffic.requests, traffic.request_bytes, traffic.request_max
            self._request_size.record_all(sizes, now_ms)


class SelectorMetrics:
    """Java's metric names in the groups ``<prefix>-metrics`` and ``<prefix>-node-metrics`` (tag ``node-id``).

    A request costs a few additions. Polls publish them to the sensors, every 3 seconds at most, and so does
    whoever reads a metric. Thread: io; ``flush``: any.
    """

    def __init__(
        self,
        metrics: Metrics,
        group_prefix: str,
        tags: Mapping[str, str],
        per_connection: bool,
        connection_count: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._tags = dict(tags)
        self._group = f"{group_prefix}-metrics"
        self._node_group = f"{group_prefix}-node-metrics"
        self._per_connection = per_connection
        self._sensor_names: list[str] = []
        self._suffix = ":" + "".join(f"{key}-{value}" for key, value in tags.items())
        self._lock = threading.Lock()  # guards: publications; taken before the locks of sensors
        self._traffic: dict[str, Traffic] = {}
        self._node_sensors: dict[str, _TrafficSensors] = {}
        self._of_closed = Traffic()  # unpublished traffic of connections that are gone
        self._total_sensors = _TrafficSensors(self, "", self._suffix, self._group, self._tags)
        self._next_flush_ms = 0
        self._polls = self._wait_ms = self._io_ms = 0  # in total
        self._published_polls = (0, 0, 0)

        self.connection_created = self._meter("connections-created", "connection-creation", "connections established")
        self.connection_closed = self._meter("connections-closed", "connection-close", "connections closed")
        self.authentication_succeeded = self._meter(
            "successful-authentication", "successful-authentication", "connections that authenticated"
        )
        self.authentication_failed = self._meter(
            "failed-authentication", "failed-authentication", "connections that failed to authenticate"
        )
        self.reauthentication_succeeded = self._meter(
            "successful-reauthentication", "successful-reauthentication", "authentications of connections in use"
        )
        self.reauthentication_failed = self._meter(
            "failed-reauthentication", "failed-reauthentication", "failed authentications of connections in use"
        )
        latency, time = "reauthentication-latency", "time to authenticate a connection in use again, in milliseconds"
        self.reauthentication_latency = self.extremes(
            f"{latency}{self._suffix}", latency, time, self._group, self._tags
        )
        self._select = self._meter("select-time", "select", "times that the I/O layer looked for something to do")
        self._io_wait, self._io_wait_total = self._time_sensors("io-wait", "waiting for sockets")
        self._io, self._io_total = self._time_sensors("io", "reading and writing")
        self._connection_count = metrics.metric_name("connection-count", self._group, "Open connections", self._tags)
        metrics.add_metric(self._connection_count, lambda _config, _now_ms: connection_count())

    # --- counting --------------------------------------------------------------------------------------------------

    def traffic(self, connection_id: str) -> Traffic:
        """Return the counters of a connection. They outlive it, because it may be re-established."""
        traffic = self._traffic.get(connection_id)
        if traffic is None:
            traffic = Traffic()
            with HERE.mark, self._lock:
                self._traffic[connection_id] = traffic
            if self._per_connection:
                self._register_connection(connection_id)
        return traffic

    def closed(self, connection_id: str) -> None:
        """Record that a connection was closed.

        Its counters are kept, unless connections have no metrics of their own.
        """
        self.connection_closed.record()
        if not self._per_connection:
            with HERE.mark, self._lock:
                traffic = self._traffic.pop(connection_id, None)
                rest = None if traffic is None else traffic.take_unpublished()
                if rest is not None:
                    self._of_closed.add(rest)

    def polled(self, wait_ms: int, io_ms: int, now_ms: int) -> None:
        """Count a poll, with its wait and I/O times; publish if that is due."""
        self._polls += 1
        self._wait_ms += wait_ms
        self._io_ms += io_ms
        if now_ms >= self._next_flush_ms:
            self.flush(now_ms)

    def flush(self, now_ms: int) -> None:
        """Publish what was counted since the last publication."""
        if is_interrupting():  # a signal handler reads a metric: this thread may hold the lock
            return
        with HERE.mark, self._lock:
            self._next_flush_ms = now_ms + FLUSH_INTERVAL_MS
            total, self._of_closed = self._of_closed, Traffic()
            for connection_id, traffic in self._traffic.items():
                since = traffic.take_unpublished()
                if since is None:
                    continue
                total.add(since)
                sensors = self._node_sensors.get(connection_id)
                if sensors is not None:
                    sensors.publish(since, now_ms)
            self._total_sensors.publish(total, now_ms)
            self._publish_polls(now_ms)

    def _publish_polls(self, now_ms: int) -> None:
        before = self._published_polls
        self._published_polls = polls, wait_ms, io_ms = self._polls, self._wait_ms, self._io_ms
        polls, wait_ms, io_ms = polls - before[0], wait_ms - before[1], io_ms - before[2]
        if polls:
            self._select.record(polls, now_ms)
            self._io_wait.record(wait_ms * 1e6 / polls, now_ms)
            self._io_wait_total.record(wait_ms, now_ms)
            self._io.record(io_ms * 1e6 / polls, now_ms)
            self._io_total.record(io_ms, now_ms)

    # --- sensors ---------------------------------------------------------------------------------------------------

    def sensor(self, name: str) -> Sensor:
        self._sensor_names.append(name)
        return self._metrics.sensor(name, before_read=self.flush)

    def metric_name(self, name: str, description: str, group: str, tags: Mapping[str, str]) -> MetricName:
        return self._metrics.metric_name(name, group, description, tags)

    def meter(self, sensor_name: str, base: str, what: str, group: str, tags: Mapping[str, str]) -> Sensor:
        """Return a sensor with ``<base>-rate`` and ``<base>-total``, to be recorded with counts."""
        sensor = self.sensor(sensor_name)
        rate = self.metric_name(f"{base}-rate", f"{what.capitalize()} per second", group, tags)
        total = self.metric_name(f"{base}-total", f"{what.capitalize()} in all", group, tags)
        sensor.add(Meter(rate, total))
        return sensor

    def extremes(self, sensor_name: str, base: str, what: str, group: str, tags: Mapping[str, str]) -> Sensor:
        """Return a sensor with ``<base>-avg`` and ``<base>-max``, to be recorded with values."""
        sensor = self.sensor(sensor_name)
        sensor.add(self.metric_name(f"{base}-avg", f"Mean {what}", group, tags), Avg())
        sensor.add(self.metric_name(f"{base}-max", f"Largest {what}", group, tags), Max())
        return sensor

    def _meter(self, sensor_name: str, base: str, what: str) -> Sensor:
        return self.meter(f"{sensor_name}{self._suffix}", base, what, self._group, self._tags)

    def _time_sensors(self, base: str, what: str) -> tuple[Sensor, Sensor]:
        """Return a sensor for nanoseconds per poll, and one for total milliseconds."""

        def name(metric: str, description: str) -> MetricName:
            return self.metric_name(f"{base}-{metric}", description, self._group, self._tags)

        average = self.sensor(f"{base}-time{self._suffix}")
        average.add(name("time-ns-avg", f"Mean nanoseconds per poll spent {what}"), Avg())
        total = self.sensor(f"{base}-time-total{self._suffix}")
        total.add(name("ratio", f"Fraction of the time spent {what}"), Rate(unit_ms=1))
        total.add(name("time-ns-total", f"Nanoseconds spent {what}"), _TotalNs())
        return average, total

    def _register_connection(self, connection_id: str) -> None:
        tags = {**self._tags, "node-id": f"node-{connection_id}"}
        prefix = f"node-{connection_id}."
        self._node_sensors[connection_id] = _TrafficSensors(self, prefix, "", self._node_group, tags)
        time = "time from sending a request to its response, in milliseconds"
        # Recorded by the senders of requests.
        self.extremes(f"{prefix}latency", "request-latency", time, self._node_group, tags)

    def close(self) -> None:
        """Remove all metrics."""
        self._metrics.remove_metric(self._connection_count)
        for name in self._sensor_names:
            self._metrics.remove_sensor(name)


#: Frames larger than this are left to the next poll, if the poller writes frames. A large write takes long enough to
#: release the GIL for it, and the poll releases the GIL anyway.
_WRITE_LATER_ABOVE: Final = 16 * 1024

#: The longest single wait; longer polls wait several times.
_MAX_WAIT_MS: Final = 3_600_000

#: Makes a socket send a reset when it is closed.
_NO_LINGER: Final = struct.pack("ii", 1, 0)

#: ``NetworkReceive`` of a tuple, without a call of Python code.
_new_receive: Final[Callable[[tuple[str, Frame]], NetworkReceive]] = functools.partial(tuple.__new__, NetworkReceive)

_IN_PROGRESS: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)


class SelectorConfig(NamedTuple):
    """The configuration of a selector.

    With a negative ``connections_max_idle_ms``, idle connections are never closed. With ``one_receive_per_poll``, a
    poll returns at most one frame per connection, as a server needs to respond in order. Connections that fail to
    authenticate stay open for ``failed_authentication_delay_ms`` (KIP-306), which slows down password guessing.
    """

    max_receive_size: int = UNLIMITED_SIZE
    connections_max_idle_ms: int = -1
    failed_authentication_delay_ms: int = 0
    one_receive_per_poll: bool = False
    metrics_group_prefix: str = "selector"
    metrics_tags: Mapping[str, str] = MappingProxyType({})
    metrics_per_connection: bool = True
    #: The port of the proxy to connect to instead of brokers; None without a proxy.
    proxy_port: int | None = None


class Selector:
    """A ``Selectable`` over sockets.

    ``send`` writes a frame at once, because the socket nearly always takes it. Only the rest waits until the socket is
    writable. So a request and its response cost three system calls: send, wait, receive.

    Thread: io, but for ``wakeup``.
    """

    def __init__(
        self,
        config: SelectorConfig,
        metrics: Metrics,
        clock: Clock,
        log_context: LogContext,
        channel_builder: ChannelBuilder | None = None,
        memory_pool: MemoryPool = UNLIMITED,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log_context.logger(__name__)
        self._channel_builder = channel_builder or plaintext_channel_builder()
        self._memory_pool = memory_pool
        self._low_memory_bytes = (memory_pool.size or 0) // 10
        self._out_of_memory = False
        self._rng = rng or random.Random()
        self._one_receive = config.one_receive_per_poll
        self._channels: dict[str, KafkaChannel] = {}
        self._delayed_closes: dict[str, int] = {}  # connection id -> time of the close, oldest first
        self._explicitly_muted: set[str] = set()
        self._buffered: set[str] = set()  # channels with buffered bytes to read, whatever their sockets have
        self._resumed: deque[str] = deque()  # channels whose authentication can go on; filled by any thread
        self._failed_sends: dict[str, ChannelState] = {}
        self._early_sends: list[NetworkSend] = []  # completed between polls
        self._used: list[KafkaChannel] = []  # those that were given a frame between polls
        self._silent_send = False  # True if one of them expects no response, so that nothing else ends the wait
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, ChannelState] = {}
        self._max_idle_ms = FOREVER_MS if config.connections_max_idle_ms < 0 else config.connections_max_idle_ms
        # No connection expires until this time. Java keeps connections in the order of use, and so changes a map at
        # each use.
        self._idle_until_ms = clock.now_ms() + self._max_idle_ms
        self._poller = new_poller()
        self._closed = False
        self._is_waiting = False
        self.metrics = SelectorMetrics(
            metrics,
            config.metrics_group_prefix,
            config.metrics_tags,
            config.metrics_per_connection,
            lambda: len(self._channels),
        )

    # --- connections -----------------------------------------------------------------------------------------------

    def connect(self, id: str, address: SocketAddress, send_buffer: int, receive_buffer: int) -> None:
        """Start to connect to ``address``.

        Raises:
            OSError: connecting failed at once.
        """
        self._ensure_not_registered(id)
        sock = socket.socket(socket.AF_INET6 if ":" in address.ip else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self._configure(sock, send_buffer, receive_buffer)
            # With a proxy, the address was found by the proxy's name.
            port = address.port if self._config.proxy_port is None else self._config.proxy_port
            code = sock.connect_ex((address.ip, port))
            if code and code not in _IN_PROGRESS:
                raise OSError(code, os.strerror(code))
            channel = self._build_channel(id, sock, address)
        except BaseException:
            sock.close()
            raise
        channel.set_remote_address(address.ip, address.port)
        self._add(channel)

    def register(self, id: str, sock: socket.socket) -> None:
        """Take over a socket that a server accepted."""
        self._ensure_not_registered(id)
        sock.setblocking(False)
        self._configure(sock, USE_DEFAULT_BUFFER_SIZE, USE_DEFAULT_BUFFER_SIZE)
        channel = self._build_channel(id, sock, None)
        host, port = sock.getpeername()[:2]
        channel.set_remote_address(host, port)
        channel.prepare(self._clock.now_ms())
        self._add(channel)
        self.metrics.connection_created.record()

    def _ensure_not_registered(self, id: str) -> None:
        if id in self._channels:
            raise IllegalStateError(f"connection {id} already exists")

    @staticmethod
    def _configure(sock: socket.socket, send_buffer: int, receive_buffer: int) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer != USE_DEFAULT_BUFFER_SIZE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        if receive_buffer != USE_DEFAULT_BUFFER_SIZE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)

    def _build_channel(self, id: str, sock: socket.socket, address: SocketAddress | None) -> KafkaChannel:
        max_size = self._config.max_receive_size
        channel = self._channel_builder.build_channel(id, sock, address, max_size, self._memory_pool)
        channel.start_authentication(functools.partial(self._resume, id))
        return channel

    def _resume(self, id: str) -> None:
        """Continue a channel's authentication in the next poll. Thread: any."""
        self._resumed.append(id)
        self.wakeup()

    def _add(self, channel: KafkaChannel) -> None:
        self._channels[channel.id] = channel
        channel.traffic = self.metrics.traffic(channel.id)
        self._sync_interest(channel)
        channel.used_ms = self._clock.now_ms()

    def _sync_interest(self, channel: KafkaChannel) -> None:
        """Register with the operating system the events that the channel waits for."""
        wanted = channel.interest()
        registered = channel.registered
        if wanted == registered:
            return
        if not registered:
            self._poller.register(channel, wanted)
        elif not wanted:
            self._poller.unregister(channel)
        else:
            self._poller.modify(channel, wanted)
        channel.registered = wanted

    def is_channel_ready(self, id: str) -> bool:
        channel = self._channels.get(id)
        return channel is not None and channel.ready

    def channel(self, id: str) -> KafkaChannel | None:
        return self._channels.get(id)

    def channels(self) -> list[KafkaChannel]:
        return list(self._channels.values())

    # --- muting ----------------------------------------------------------------------------------------------------

    def mute(self, id: str) -> None:
        """Stop reading from a channel until ``unmute``, even if memory becomes free."""
        channel = self._open_channel(id)
        channel.muted = True
        self._explicitly_muted.add(id)
        self._buffered.discard(id)
        self._sync_interest(channel)

    def unmute(self, id: str) -> None:
        channel = self._open_channel(id)
        channel.muted = False
        self._explicitly_muted.discard(id)
        self._sync_interest(channel)
        if channel.has_bytes_buffered:
            self._buffered.add(id)

    def _open_channel(self, id: str) -> KafkaChannel:
        channel = self._channels.get(id)
        if channel is None:
            raise IllegalStateError(f"there is no connection {id}")
        return channel

    # --- sending ---------------------------------------------------------------------------------------------------

    def send(self, send: NetworkSend) -> None:
        """Send a frame on a channel with nothing else to send. Writes as much as the socket accepts."""
        id = send.destination_id
        channel = self._channels.get(id) or self._open_channel(id)
        if channel.send is not None:
            raise IllegalStateError(f"connection {id} is still sending the frame before this one")
        channel.send = send
        if not channel.ready:
            return
        if channel.reauthenticate_ms is not None and self._begin_reauthentication(channel, channel.reauthenticate_ms):
            return
        try:
            if send.size > _WRITE_LATER_ABOVE and self._poller.write_later(channel, not send.expect_response):
                self._used.append(channel)
                return
            self._write(channel, send, self._early_sends)
        except (AuthenticationError, OSError) as error:
            raise_if_of_signal_handler(error)
            # The next poll reports the failure, so that callers learn of all disconnects in one place.
            self._log.debug("Sending to %s (%s) failed: %s", id, channel.describe(), error)
            if isinstance(error, AuthenticationError):
                channel.fail_authentication(error)
            state = channel.state.with_details(channel.describe(), error)
            self._close(channel, notify=False)
            self._failed_sends[id] = state
        else:
            self._used.append(channel)
            if channel.send is not None:
                self._sync_interest(channel)
            elif not send.expect_response:
                self._silent_send = True

    def _begin_reauthentication(self, channel: KafkaChannel, due_ms: int) -> bool:
        """Let the connection authenticate again, if it is time, before it sends its frame, from the next poll on.

        Responses to earlier frames still arrive meanwhile (KIP-368).
        """
        now_ms = self._clock.now_ms()
        if now_ms < due_ms:
            return False
        self._log.debug("Connection %s (%s) authenticates again", channel.id, channel.describe())
        channel.begin_reauthentication(now_ms)
        self._buffered.add(channel.id)
        return True

    def reauthenticate(self, id: str, frame: Frame) -> None:
        """Begin to reauthenticate a client of this server in the next poll. ``frame`` is its first request."""
        channel = self._open_channel(id)
        channel.begin_reauthentication(self._clock.now_ms(), frame)
        self._buffered.add(id)

    def session_of(self, id: str) -> Session | None:
        """Return the session of a server's connection with SASL; None if there is no such connection."""
        channel = self._channels.get(id)
        return None if channel is None or not channel.ready else channel.session

    def _write(self, channel: KafkaChannel, send: NetworkSend, completed: list[NetworkSend]) -> None:
        """Write as much of a channel's frame as its socket accepts; append the frame to ``completed`` if it is sent."""
        written = channel.stream.write(send)
        traffic = channel.traffic
        if written:
            traffic.bytes_sent += written
            traffic.io_count += 1
        if send.completed:
            channel.send = None
            size = send.size
            traffic.requests += 1
            traffic.request_bytes += size
            traffic.request_max = size if size > traffic.request_max else traffic.request_max
            completed.append(send)

    def repeat(self, id: str, request: RepeatableRequest) -> Callable[[], Repetitions] | None:
        channel = self._channels.get(id)
        return channel.end_repeating if channel is not None and channel.begin_repeating(request) else None

    # --- polling ---------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        if not self._closed:
            self._poller.wakeup()

    def fileno(self) -> int:
        return self._poller.fileno()

    def wait_bound_ms(self, now_ms: int) -> int:
        if (
            self._silent_send
            or self._failed_sends
            or self._buffered
            or self._resumed
            or (self._out_of_memory and not self._memory_pool.is_out_of_memory)
            or self._poller.has_work
        ):
            return 0
        due_ms = self._idle_until_ms + 1 if self._channels else FOREVER_MS
        if self._delayed_closes:
            due_ms = min(due_ms, next(iter(self._delayed_closes.values())))
        if due_ms >= FOREVER_MS:
            return FOREVER_MS
        return due_ms - now_ms if due_ms > now_ms else 0

    def poll(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            raise IllegalArgumentError(f"the timeout must not be negative, but is {timeout_ms}")
        # Forget the results of the last poll, and report what happened since.
        self.completed_sends, self._early_sends = self._early_sends, []
        self.completed_receives = []
        self.connected = []
        self.disconnected = {}
        if self._failed_sends:
            self.disconnected.update(self._failed_sends)
            self._failed_sends.clear()
        silent_send, self._silent_send = self._silent_send, False
        if silent_send or self.disconnected or self._buffered or self._resumed:
            timeout_ms = 0
        if self._out_of_memory and not self._memory_pool.is_out_of_memory:
            self._unmute_after_memory_pressure()

        start_ms = self._clock.now_ms()
        if self._used:
            # A write causes no event. Without this, a connection without responses (acks=0) would count as idle, and a
            # connection that was idle until now would be closed before its response arrives.
            for channel in self._used:
                channel.used_ms = start_ms
            self._used.clear()
        if self._delayed_closes:
            timeout_ms = max(0, min(timeout_ms, next(iter(self._delayed_closes.values())) - start_ms))
        timeout_ms = timeout_ms if timeout_ms < _MAX_WAIT_MS else _MAX_WAIT_MS
        self._is_waiting = timeout_ms > 0
        events = self._poller.select(timeout_ms)
        self._is_waiting = False
        now_ms = self._clock.now_ms() if timeout_ms > 0 else start_ms
        while self._resumed:
            self._buffered.add(self._resumed.popleft())
        end_ms = now_ms
        if events or self._buffered:
            self._handle(events, now_ms)
            end_ms = self._clock.now_ms()
        self.metrics.polled(now_ms - start_ms, end_ms - now_ms, now_ms)
        if self._delayed_closes:
            self._complete_delayed_closes(now_ms)
        if now_ms > self._idle_until_ms:
            self._close_if_idle(now_ms)

    def end_interrupted_wait(self) -> bool:
        is_waiting, self._is_waiting = self._is_waiting, False
        return is_waiting

    def _handle(self, events: list[tuple[KafkaChannel | None, int]], now_ms: int) -> None:
        buffered = self._buffered
        if buffered:
            self._buffered = set()
            ready = {channel.id for channel, _ in events if channel is not None}
            for id in buffered - ready:
                if id in self._channels and id not in self._delayed_closes:
                    self._handle_channel(self._channels[id], 0, now_ms)
        if self._low_memory_bytes and self._memory_pool.available_memory < self._low_memory_bytes:
            # If memory suffices for a few channels only, the first in the list would get it each time.
            self._rng.shuffle(events)
        for channel, mask in events:
            if channel is not None and channel.id in self._channels:
                self._handle_channel(channel, mask, now_ms)

    def _handle_channel(self, channel: KafkaChannel, mask: int, now_ms: int) -> None:
        """Handle the events of one channel."""
        id = channel.id
        channel.used_ms = now_ms
        try:
            if not channel.ready and not self._make_ready(channel, now_ms):
                return
            if not channel.muted and (mask & READ or channel.has_bytes_buffered):
                self._read(channel)
            if mask & WRITE and channel.send is not None:
                self._write(channel, channel.send, self.completed_sends)
        except AuthenticationError as error:
            raise_if_of_signal_handler(error)
            channel.fail_authentication(error)
            metrics, is_first = self.metrics, channel.reauthentication_start_ms is None
            (metrics.authentication_failed if is_first else metrics.reauthentication_failed).record(1.0, now_ms)
            # Only DEBUG, for the reason given below.
            self._log.debug("Authentication of connection %s (%s) failed: %s", id, channel.describe(), error)
            self._close_after_failed_authentication(channel, now_ms)
        except (OSError, ProtocolError) as error:
            raise_if_of_signal_handler(error)
            channel.state = channel.state.with_details(channel.describe(), error)
            # Only DEBUG: ``disconnected`` gives the cause to its readers, who know how important it is.
            self._log.debug("Connection %s (%s) ended: %s", id, channel.describe(), error)
            self._close(channel, notify=True)
        else:
            if mask & WRITE or channel.muted or (not channel.is_plain and channel.wants_write):
                self._sync_interest(channel)

    def _make_ready(self, channel: KafkaChannel, now_ms: int) -> bool:
        """Continue to connect and to authenticate. Return whether the channel can carry requests now."""
        if not channel.is_connected:
            if not channel.finish_connect():
                self._sync_interest(channel)  # which changes while a proxy connects
                return False
            self.connected.append(channel.id)
            self.metrics.connection_created.record(1.0, now_ms)
        if not channel.ready:
            try:
                channel.prepare(now_ms)
            finally:
                self._take_received_meanwhile(channel)
        self._sync_interest(channel)
        if channel.ready:
            if channel.reauthentication_start_ms is None:
                self.metrics.authentication_succeeded.record(1.0, now_ms)
            else:
                self.metrics.reauthentication_succeeded.record(1.0, now_ms)
                self.metrics.reauthentication_latency.record(now_ms - channel.reauthentication_start_ms, now_ms)
            self._log.debug("Connection %s (%s) is ready", channel.id, channel.describe())
        return channel.ready

    def _take_received_meanwhile(self, channel: KafkaChannel) -> None:
        frames = channel.received_meanwhile
        if frames:
            self.completed_receives += [NetworkReceive(channel.id, frame) for frame in frames]
            channel.traffic.responses += len(frames)
            frames.clear()

    def _read(self, channel: KafkaChannel) -> None:
        frames: list[Frame] = []
        stream = channel.stream
        try:
            received = stream.read(frames, self._one_receive)
            if received:
                traffic = channel.traffic
                traffic.bytes_received += received
                traffic.io_count += 1
                traffic.responses += len(frames)
        except TlsResponseError as error:
            raise channel.speaks_tls(error) from error
        finally:
            for frame in frames:
                self.completed_receives.append(_new_receive((channel.id, frame)))
        if stream.waits_for_memory:
            channel.muted = True
            self._out_of_memory = True
        elif (self._one_receive or not channel.is_plain) and channel.has_bytes_buffered:
            self._buffered.add(channel.id)

    def _unmute_after_memory_pressure(self) -> None:
        self._out_of_memory = False
        for id, channel in self._channels.items():
            if channel.stream.waits_for_memory and id not in self._explicitly_muted:
                channel.muted = False
                self._sync_interest(channel)
                if channel.has_bytes_buffered:
                    self._buffered.add(id)

    # --- closing ---------------------------------------------------------------------------------------------------

    def close_channel(self, id: str) -> None:
        """Close a connection, if it exists. It does not appear in ``disconnected``."""
        self._failed_sends.pop(id, None)
        channel = self._channels.get(id)
        if channel is not None:
            channel.state = channel.state.move_to(channel_state.LOCAL_CLOSE)
            self._close(channel, notify=False)

    def reset_channel(self, id: str) -> None:
        """Close a connection as if the process had died: unsent bytes are lost, and the peer gets a reset."""
        channel = self._channels.get(id)
        if channel is not None:
            channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.close_channel(id)

    def _close(self, channel: KafkaChannel, *, notify: bool) -> None:
        """Stop watching a channel and close it.

        No frame is lost: reads take buffered bytes before they read from the socket. So the end of a stream is seen
        only after all frames before it were returned (a producer with acks=0 may send and leave).
        """
        id = channel.id
        if channel.registered:
            self._poller.unregister(channel)
            channel.registered = 0
        if id in self.connected:
            self.connected.remove(id)  # the connection was made and failed in the same poll
        del self._channels[id]
        self._delayed_closes.pop(id, None)
        self._buffered.discard(id)
        self._explicitly_muted.discard(id)
        channel.close()
        self.metrics.closed(id)
        if notify:
            self.disconnected[id] = channel.state

    def _close_after_failed_authentication(self, channel: KafkaChannel, now_ms: int) -> None:
        delay_ms = self._config.failed_authentication_delay_ms
        if delay_ms <= 0:
            self._finish_failed_authentication(channel, now_ms)
            return
        self._delayed_closes[channel.id] = now_ms + delay_ms
        if channel.registered:
            self._poller.unregister(channel)
            channel.registered = 0

    def _finish_failed_authentication(self, channel: KafkaChannel, now_ms: int) -> None:
        try:
            channel.send_authentication_frames(now_ms)
        except OSError as error:
            raise_if_of_signal_handler(error)
            self._log.debug("Connection %s ended before the authentication error was sent: %s", channel.id, error)
        self._close(channel, notify=True)

    def _complete_delayed_closes(self, now_ms: int) -> None:
        for id, due_ms in list(self._delayed_closes.items()):
            if due_ms > now_ms:
                break
            self._finish_failed_authentication(self._channels[id], now_ms)

    def _close_if_idle(self, now_ms: int) -> None:
        """Close the least recently used connection if it was idle for too long."""
        channel = min(self._channels.values(), key=attrgetter("used_ms"), default=None)
        self._idle_until_ms = (now_ms if channel is None else channel.used_ms) + self._max_idle_ms
        if channel is not None and now_ms > self._idle_until_ms:
            self._log.debug("Closing connection %s, idle for %d ms", channel.id, now_ms - channel.used_ms)
            if channel.state.state != channel_state.AUTHENTICATION_FAILED:
                channel.state = channel.state.move_to(channel_state.EXPIRED)
            self._close(channel, notify=True)

    def drop_connections(self) -> None:
        # Not with ``_close``, which relies on consistent collections.
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            if channel.registered:
                # It may be unregistered or closed already.
                with SuppressOSErrors(), contextlib.suppress(KeyError, ValueError):
                    self._poller.unregister(channel)
            with SuppressOSErrors():
                channel.close()
            self.metrics.closed(channel.id)
        self._delayed_closes = {}
        self._explicitly_muted = set()
        self._buffered = set()
        self._resumed.clear()
        self._failed_sends = {}
        self._early_sends = []
        self._used = []
        self._silent_send = self._out_of_memory = self._is_waiting = False
        self.completed_sends, self.completed_receives, self.connected, self.disconnected = [], [], [], {}

    def abandon(self) -> None:
        """Release the sockets in a forked child, without closing the parent's connections.

        The child shares the registered events with the parent in the kernel, so it must not unregister any.
        """
        self._closed = True
        for channel in list(self._channels.values()):
            channel.sock.close()
        self._poller.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for id in list(self._channels):
            self.close_channel(id)
        self._poller.close()
        self.metrics.close()
        self._channel_builder.close()


use_compiled(__name__)
