"""The compiled form of ``murmur_hash.py``; C code takes the hash from ``_murmur_hash.pxd``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from pykclient.producer.partitioner.murmur_hash import murmur2 as murmur2_python


def murmur2(object data):
    if type(data) is not bytes:
        return murmur2_python(data)
    return murmur2_of(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
