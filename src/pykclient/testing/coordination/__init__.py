"""Where the cluster keeps what all brokers must agree on: a tree of nodes with ZooKeeper's semantics, in memory."""
