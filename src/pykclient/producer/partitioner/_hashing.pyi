from pykclient.producer.partitioner.hashing import hash_partitions as hash_partitions, murmur2 as murmur2
