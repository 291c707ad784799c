"""Requests from one broker to others, and to the controller, such as those for topics that clients have requested.

Java: InterBrokerSendThread, NodeToControllerChannelManagerImpl, DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from pykclient import errors, topic_names
from pykclient.errors import AuthenticationError
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.protocol.message import Message, Request as RequestMessage
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.event_loop import TimerHandle
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.types import Node

Key = TypeVar("Key")
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, such as the partitions of a topic for a message. Both keep their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def missing_topic_code(name: str) -> int:
    """Return the error code for a topic that does not exist, or whose name is not valid."""
    return (errors.UnknownTopicOrPartitionError if topic_names.is_valid(name) else errors.InvalidTopicError).code


def missing_topic(name: str) -> MetadataResponseTopic:
    """Return the response for a topic that does not exist, or whose name is not valid."""
    code = missing_topic_code(name)
    return MetadataResponseTopic(error_code=code, name=name, is_internal=topic_names.is_internal(name))


class RequestAndCompletionHandler(NamedTuple):
    """A request for a node, and the callback for its outcome."""

    created_ms: int
    destination: Node
    request: RequestBuilder
    handler: Callable[[ClientResponse], None]


class LoopWorker:
    """A polling thread of Java, without a thread of its own.

    ``wakeup`` schedules one ``do_work`` on the loop, and a timer does so in time.

    Thread: loop.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(type(self).__module__)
        self._running = False
        self._scheduled = False
        self._timer: TimerHandle | None = None

    def shutdown(self) -> None:
        """Do no more work."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wakeup(self) -> None:
        """Schedule ``do_work``."""
        if self._running and not self._scheduled:
            self._scheduled = True
            self._broker.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._running:
            self.do_work()

    def do_work(self) -> None:
        """Do what is due."""
        raise NotImplementedError

    def _wake_at(self, when_ms: int) -> None:
        """Do work again at ``when_ms`` at the latest."""
        timer = self._timer
        if timer is not None:
            if timer.active and timer.when_ms <= when_ms:
                return
            timer.cancel()
        self._timer = self._broker.call_later(when_ms - self._broker.loop.now_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wakeup()


class InterBrokerSendThread(LoopWorker):
    """Sends requests as soon as their nodes are ready, and reports each outcome.

    It works when there is something to send and when the network has news. A request that is not sent in time, or
    whose node is unreachable, completes as disconnected. Thread: loop.
    """

    def __init__(self, broker: BrokerContext, purpose: str, request_timeout_ms: int) -> None:
        super().__init__(broker)
        self._purpose = purpose
        self._request_timeout_ms = request_timeout_ms
        self._is_closed = False
        self._to_send: list[RequestAndCompletionHandler] = []
        #: Requests that wait for a connection, by node, in order.
        self._unsent: dict[Node, deque[ClientRequest]] = {}
        self._connecting: set[str] = set()  # ids of nodes that requests wait for, except those in backoff
        #: The deadline of each unanswered request by correlation id, oldest first.
        self._deadlines_ms: dict[int, int] = {}

    def startup(self) -> None:
        self._network_client, selector = self._broker.new_network_client(self._purpose)
        selector.on_news = self.wakeup
        self._running = True

    def shutdown(self) -> None:
        """Discard everything, without completing the requests in flight."""
        self._is_closed = True
        if self._running:
            super().shutdown()
            self._to_send.clear()
            self._network_client.close()

    def send(self, node: Node, request: RequestMessage, handler: Callable[[ClientResponse], None]) -> None:
        """Send a request to a node; ``handler`` gets the response, or learns that none will come. Not after the end."""
        if self._is_closed:
            return
        if not self._running:
            self.startup()
        self._to_send.append(
            RequestAndCompletionHandler(self._broker.loop.now_ms, node, RequestBuilder(request), handler)
        )
        self.wakeup()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        """Return the requests to send now."""
        requests, self._to_send = self._to_send, []
        return requests

    def do_work(self) -> None:
        """Do one round: send, receive, and time out requests."""
        client = self._network_client
        for generated in self.generate_requests():
            request = client.new_client_request(
                generated.destination.id_string,
                generated.request,
                generated.created_ms,
                True,
                self._request_timeout_ms,
                self._completion(generated.handler),
            )
            self._deadlines_ms[request.correlation_id] = generated.created_ms + self._request_timeout_ms
            self._unsent.setdefault(generated.destination, deque()).append(request)
        if not self._running:
            return  # a completion handler has stopped the broker
        now_ms = self._broker.loop.now_ms
        wait_ms = self._send_requests(now_ms) if self._unsent else self._request_timeout_ms
        client.poll(0, now_ms)
        if not self._running:
            return
        if self._unsent:
            self._check_disconnects(now_ms)
            self._fail_expired_requests(now_ms)
            if self._unsent:
                # The poll may have established a connection.
                wait_ms = min(wait_ms, self._send_requests(now_ms))
        # If nothing is in flight, a leftover timer does no harm. A timer per request would fill the loop's heap.
        if self._deadlines_ms:
            oldest_ms = next(iter(self._deadlines_ms.values()))
            self._wake_at(now_ms + max(1, min(wait_ms, oldest_ms + 1 - now_ms)))

    def _completion(self, handler: Callable[[ClientResponse], None]) -> Callable[[ClientResponse], None]:
        def complete(response: ClientResponse) -> None:
            self._deadlines_ms.pop(response.correlation_id, None)
            handler(response)

        return complete

    def _send_requests(self, now_ms: int) -> int:
        """Send as much as possible; return the milliseconds until the rest must be checked again."""
        client = self._network_client
        wait_ms = self._request_timeout_ms
        for node, requests in list(self._unsent.items()):
            while requests:
                can_connect = client.can_connect(node, now_ms)
                if client.ready(node, now_ms):
                    self._connecting.discard(node.id_string)
                    client.send(requests.popleft(), now_ms)
                else:
                    if can_connect or not client.connection_failed(node):
                        self._connecting.add(node.id_string)
                    wait_ms = min(wait_ms, client.connection_delay_ms(node, now_ms))
                    break
            if not requests:
                del self._unsent[node]
        return wait_ms

    def _check_disconnects(self, now_ms: int) -> None:
        # The network client completes requests in flight when their connection is lost; this is about unsent ones.
        # During a backoff they wait for the next attempt: if they failed at once, they would be sent again at once.
        client = self._network_client
        for node in list(self._unsent):
            if node.id_string in self._connecting and client.connection_failed(node):
                self._connecting.discard(node.id_string)
                error = client.authentication_error(node)
                for request in self._unsent.pop(node):
                    self._complete_with_disconnect(request, now_ms, error)

    def _fail_expired_requests(self, now_ms: int) -> None:
        expired = []
        for node, requests in list(self._unsent.items()):
            while requests and now_ms - requests[0].created_ms >= requests[0].request_timeout_ms:
                expired.append(requests.popleft())
            if not requests:
                del self._unsent[node]
        for request in expired:
            self._log.debug("Not sent within %d ms: %r", request.request_timeout_ms, request)
            self._complete_with_disconnect(request, now_ms, None)

    @staticmethod
    def _complete_with_disconnect(request: ClientRequest, now_ms: int, error: AuthenticationError | None) -> None:
        ClientResponse(
            request.api_key,
            request.request_builder.latest_allowed_version,
            request.correlation_id,
            request.callback,
            request.destination,
            now_ms,
            now_ms,
            disconnected=True,
            authentication_error=error,
        ).on_complete()


@dataclass(slots=True, eq=False)
class NodeToControllerQueueItem:
    """A request for the controller, with two callbacks, of which one is called once. Thread: loop."""

    created_ms: int
    request: RequestBuilder
    on_complete: Callable[[ClientResponse], None]
    on_timeout: Callable[[], None]


class NodeToControllerChannelManager(InterBrokerSendThread):
    """The broker's channel to the controller, for ALTER_PARTITION, producer ids, controlled shutdown and new topics.

    It sends the queued requests, one after the other, to the controller that the metadata cache names. If that broker
    is not the controller or unreachable, it is forgotten, and the request returns to the head of the queue, for the
    controller that the cache names next. Without a controller the requests wait for the next UPDATE_METADATA.

    Thread: loop.
    """

    def __init__(self, broker: BrokerContext, metadata_cache: MetadataCache) -> None:
        self._retry_timeout_ms = broker.config.get_int("request.timeout.ms")
        socket_timeout_ms = broker.config.get_int("controller.socket.timeout.ms")
        super().__init__(broker, "to-controller", min(socket_timeout_ms, self._retry_timeout_ms))
        self._metadata_cache = metadata_cache
        self._queue: deque[NodeToControllerQueueItem] = deque()
        self._active_controller: Node | None = None

    def startup(self) -> None:
        self._metadata_cache.add_listener(self._on_metadata_update)
        super().startup()

    def shutdown(self) -> None:
        super().shutdown()
        self._queue.clear()

    def send_request(
        self,
        request: RequestBuilder,
        on_complete: Callable[[ClientResponse], None],
        on_timeout: Callable[[], None] = lambda: None,
    ) -> None:
        """Send ``request`` to the controller within ``request.timeout.ms``, including the time to find it.

        ``on_complete`` may also get an error that the controller does not know the API or this broker. Responses saying
        that the broker was not the controller are not passed on.

        Raises:
            IllegalStateError: the channel is not open.
        """
        if not self._running:
            raise errors.IllegalStateError("a request for the controller was sent while its channel is not open")
        self._queue.append(NodeToControllerQueueItem(self._broker.loop.now_ms, request, on_complete, on_timeout))
        self.wakeup()

    def _on_metadata_update(self, topics: Collection[str]) -> None:  # noqa: ARG002 - the listener's signature
        """Check whether the cache names a controller now."""
        if self._queue and self._active_controller is None:
            self.wakeup()

    def do_work(self) -> None:
        if self._active_controller is None:
            cache = self._metadata_cache
            controller_id = cache.controller_id
            if controller_id is not None:
                self._active_controller = cache.alive_broker(controller_id)
        super().do_work()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        self._expire(self._broker.loop.now_ms)
        controller = self._active_controller
        if controller is None or not self._queue or self._unsent or self._network_client.in_flight_request_count() > 0:
            return ()
        item = self._queue.popleft()
        now_ms = self._broker.loop.now_ms
        return (
            RequestAndCompletionHandler(
                now_ms, controller, item.request, lambda response: self._handle_response(item, response)
            ),
        )

    def _handle_response(self, item: NodeToControllerQueueItem, response: ClientResponse) -> None:
        if response.authentication_error is not None:
            self._log.error("The controller refused this broker: %s", response.authentication_error)
            self._maybe_disconnect_and_update_controller()
            item.on_complete(response)
        elif response.build_error is not None:
            item.on_complete(response)
        elif response.disconnected:
            self._active_controller = None
            self._queue.appendleft(item)
        elif contains_error(response.response_body, errors.NotControllerError.code):
            self._maybe_disconnect_and_update_controller()
            self._queue.appendleft(item)
        else:
            item.on_complete(response)
        if self._queue:
            self.wakeup()

    def _maybe_disconnect_and_update_controller(self) -> None:
        if self._active_controller is not None:
            # The reconnect backoff also prevents a tight loop if the cache lags behind.
            self._network_client.disconnect(self._active_controller.id_string)
            self._active_controller = None

    # --- giving up -------------------------------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> None:
        expired = [item for item in self._queue if now_ms - item.created_ms >= self._retry_timeout_ms]
        for item in expired:
            self._queue.remove(item)
        for item in expired:
            if self._running:  # the previous response may have completed the broker's shutdown
                item.on_timeout()
        if self._queue and self._running:
            self._wake_at(min(item.created_ms for item in self._queue) + self._retry_timeout_ms)


def contains_error(message: Message | None, code: int) -> bool:
    """Return whether a response has ``code`` at its top level, or for one of its topics (Java:
    AbstractResponse.errorCounts).
    """
    if message is None:
        return False
    if getattr(message, "error_code", 0) == code:
        return True
    for name in ("topics", "partitions", "responses", "replica_election_results", "results"):
        elements = getattr(message, name, None)
        if isinstance(elements, list) and any(contains_error(element, code) for element in elements):
            return True
    return False


_RETRY_BACKOFF_MS: Final = 50

#: The maximum time that a request for an id is held. After that its client might consider the connection dead.
_MAX_WAIT_MS: Final = 5_000

#: Called with an error code and, if that is 0, the id.
ProducerIdCallback = Callable[[int, int], None]


class ProducerIdManager:
    """Allocates ids from the block that the controller gave to this broker, and requests the next block in time.

    Requests without an available id wait for the next block. The unused ids of a block are lost when the broker ends,
    which does no harm.

    Thread: loop
    """

    def __init__(self, broker: BrokerContext, controller: NodeToControllerChannelManager) -> None:
        self._broker = broker
        self._controller = controller
        self._log = broker.log_context.logger(__name__)
        self._next_id = 0
        self._end = 0
        self._asking = False
        #: The waiting requests in the order of arrival, each with its timeout.
        self._waiting: dict[ProducerIdCallback, TimerHandle] = {}

    def generate_producer_id(self, respond: ProducerIdCallback) -> None:
        """Call ``respond`` with an id, or with COORDINATOR_LOAD_IN_PROGRESS if there is none within five seconds."""
        if self._next_id < self._end:
            self._next_id += 1
            respond(0, self._next_id - 1)
        else:
            self._waiting[respond] = self._broker.call_later(_MAX_WAIT_MS, self._give_up, respond)
            self._ask()

    def _give_up(self, respond: ProducerIdCallback) -> None:
        if self._waiting.pop(respond, None) is not None:
            respond(errors.CoordinatorLoadInProgressError.code, -1)

    def _ask(self) -> None:
        if self._asking:
            return
        self._asking = True
        request = AllocateProducerIdsRequest(broker_id=self._broker.id, broker_epoch=self._broker.epoch)
        self._controller.send_request(RequestBuilder(request), self._on_response, self._on_failure)

    def _on_response(self, response: ClientResponse) -> None:
        body = response.response_body
        if not isinstance(body, AllocateProducerIdsResponse) or body.error_code:
            self._log.info("The controller gave no block of producer ids: %r", body)
            self._on_failure()
            return
        self._asking = False
        self._next_id = body.producer_id_start
        self._end = body.producer_id_start + body.producer_id_len
        waiting, self._waiting = self._waiting, {}
        for respond, timer in waiting.items():
            timer.cancel()
            self.generate_producer_id(respond)

    def _on_failure(self) -> None:
        """Try again, as long as requests wait."""
        self._broker.call_later(_RETRY_BACKOFF_MS, self._retry)

    def _retry(self) -> None:
        self._asking = False
        if self._waiting:
            self._ask()


MetadataResponseTopic = MetadataResponse.MetadataResponseTopic


@dataclass(eq=False, repr=False)
class AutoTopicCreationManager:
    """Requests topics from the controller, with one request per topic at a time.

    Clients retry until the topic exists. Thread: loop.
    """

    _broker: BrokerContext
    _metadata_cache: MetadataCache
    _controller: NodeToControllerChannelManager
    _in_flight: set[str] = field(default_factory=set)

    def create_topics(self, topics: Collection[str]) -> list[MetadataResponseTopic]:
        """Return the response for each topic: it does not exist yet, or its name is invalid."""
        creatable = [topic for topic in topics if topic_names.is_valid(topic) and topic not in self._in_flight]
        if creatable:
            self._send_create_topics_request(creatable)
        return [missing_topic(topic) for topic in topics]

    def _send_create_topics_request(self, topics: list[str]) -> None:
        self._in_flight.update(topics)
        request = CreateTopicsRequest(
            topics=[self._creatable_topic(topic) for topic in topics],
            timeout_ms=self._broker.config.get_int("request.timeout.ms"),
        )

        def on_timeout() -> None:
            self._in_flight.difference_update(topics)

        def on_complete(response: ClientResponse) -> None:
            on_timeout()
            body = response.response_body
            log = self._broker.log_context.logger(__name__)
            for topic in body.topics if isinstance(body, CreateTopicsResponse) else ():
                if topic.error_code:
                    log.info("Could not create topic %s: %s", topic.name, topic.error_message)

        self._controller.send_request(RequestBuilder(request), on_complete, on_timeout)

    def _creatable_topic(self, topic: str) -> CreateTopicsRequest.CreatableTopic:
        config = self._broker.config
        if topic == topic_names.GROUP_METADATA_TOPIC_NAME:
            prefix = "offsets.topic"
            configs = {"cleanup.policy": "compact", "compression.type": "producer"}
        elif topic == topic_names.TRANSACTION_STATE_TOPIC_NAME:
            prefix = "transaction.state.log"
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
            }
        elif topic == topic_names.SHARE_GROUP_STATE_TOPIC_NAME:
            prefix = "share.coordinator.state.topic"
            configs = {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
                "retention.ms": "-1",
            }
        else:
            return CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
        brokers = len(self._metadata_cache.snapshot.alive_brokers)
        configs["segment.bytes"] = str(config.get_int(f"{prefix}.segment.bytes"))
        return CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=config.get_int(f"{prefix}.num.partitions"),
            replication_factor=min(config.get_int(f"{prefix}.replication.factor"), brokers),
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            ],
        )
