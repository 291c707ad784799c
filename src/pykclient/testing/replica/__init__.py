"""Replication: partitions and their in-sync replicas, requests that wait for them, fetch sessions, followers.

- ``replica_manager``: all replicas of a broker, and requests that wait for replicas; ``partition``: one replica
- ``replica_fetcher``, ``fetch_session``: followers, and fetch sessions of both sides
"""
