"""The automatic creation of topics that clients request (Java: DefaultAutoTopicCreationManager)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pykclient import topic_names
from pykclient.errors import InvalidTopicError, UnknownTopicOrPartitionError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from pykclient.testing.broker_context import BrokerContext
    from pykclient.testing.inter_broker_requests import NodeToControllerChannelManager
    from pykclient.testing.metadata_cache import MetadataCache

MetadataResponseTopic = MetadataResponse.MetadataResponseTopic


class AutoTopicCreationManager:
    """Requests topics from the controller, with one request per topic at a time.

    Clients retry until the topic exists. Thread: loop.
    """

    def __init__(
        self, broker: BrokerContext, metadata_cache: MetadataCache, controller: NodeToControllerChannelManager
    ) -> None:
        self._broker = broker
        self._metadata_cache = metadata_cache
        self._controller = controller
        self._log = broker.log_context.logger(__name__)
        self._in_flight: set[str] = set()

    def create_topics(self, topics: Collection[str]) -> list[MetadataResponseTopic]:
        """Return the response for each topic: it does not exist yet, or its name is invalid."""
        answers = []
        creatable = []
        for topic in topics:
            if not topic_names.is_valid(topic):
                code = InvalidTopicError.code
            else:
                code = UnknownTopicOrPartitionError.code
                if topic not in self._in_flight:
                    creatable.append(topic)
            answers.append(
                MetadataResponseTopic(error_code=code, name=topic, is_internal=topic_names.is_internal(topic))
            )
        if creatable:
            self._send_create_topics_request(creatable)
        return answers

    def _send_create_topics_request(self, topics: list[str]) -> None:
        self._in_flight.update(topics)
        request = CreateTopicsRequest(
            topics=[self._creatable_topic(topic) for topic in topics],
            timeout_ms=self._broker.config.get_int("request.timeout.ms"),
        )

        def on_complete(response: ClientResponse) -> None:
            self._in_flight.difference_update(topics)
            body = response.response_body
            if isinstance(body, CreateTopicsResponse):
                for topic in body.topics:
                    if topic.error_code:
                        self._log.info("Could not create topic %s: %s", topic.name, topic.error_message)

        def on_timeout() -> None:
            self._in_flight.difference_update(topics)

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
