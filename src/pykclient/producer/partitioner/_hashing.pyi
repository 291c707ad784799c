from pykclient.producer.partitioner.hashing import hash_partitions as hash_partitions
from pykclient.producer.partitioner.hashing import murmur2 as murmur2
