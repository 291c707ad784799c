from pykclient.producer.queue_state import QueueState as QueueState
from pykclient.producer.queue_state import StickyPartitionInfo as StickyPartitionInfo
from pykclient.producer.queue_state import StickyState as StickyState
from pykclient.producer.queue_state import new_lock as new_lock
