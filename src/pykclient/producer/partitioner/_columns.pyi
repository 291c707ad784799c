from pykclient.producer.partitioner.columns import hash_partitions as hash_partitions
