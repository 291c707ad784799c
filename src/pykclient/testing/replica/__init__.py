"""Replication: partitions and their in-sync replicas, requests that wait for them, fetch sessions, followers.

- ``replica_manager``: all replicas of a broker; ``partition``: one of them
- ``replica_fetcher``, ``fetch_session``: followers, and fetch sessions of both sides
- ``delayed_requests``: requests that wait for replicas
"""
