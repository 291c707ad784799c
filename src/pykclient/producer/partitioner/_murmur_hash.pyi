from pykclient.producer.partitioner.murmur_hash import murmur2 as murmur2
