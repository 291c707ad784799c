from pykclient.producer.batch_walks import drain_queues as drain_queues
from pykclient.producer.batch_walks import file_queues as file_queues
from pykclient.producer.batch_walks import succeed_written as succeed_written
