"""aiokafka's module of this name: the admin client and its arguments."""

from __future__ import annotations

from pykclient.admin import ConfigResource as ConfigResource
from pykclient.admin import ConfigResourceType as ConfigResourceType
from pykclient.admin import NewPartitions as NewPartitions
from pykclient.admin import NewTopic as NewTopic
from pykclient.aio.aio_kafka_admin_client import AIOKafkaAdminClient as AIOKafkaAdminClient
