"""The store for everything that all brokers must agree on: an in-memory tree of nodes with ZooKeeper's semantics.

- ``coordination_service``: the tree, its sessions and watches
- ``coordination_client``: a broker's session
- ``znodes``: the nodes of a cluster and their contents
"""
