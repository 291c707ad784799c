"""The store for everything that all brokers must agree on: an in-memory tree of nodes with ZooKeeper's semantics."""
