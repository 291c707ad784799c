"""Replication: partitions and their in-sync replicas, requests that wait for them, fetch sessions, followers."""
