"""Connections, frames, nodes and metadata; nothing specific to producing or consuming.

- ``network_client``, ``client_request``: requests and responses, by node
- ``cluster_connection_states``: the state of each node, and what it supports
- ``metadata``, ``metadata_updater``, ``host_resolver``: knowledge of the cluster, and bootstrapping
- ``selector``, ``kafka_channel``, ``transport_layer``, ``channel_builders``: connections and sockets
- ``frames``: frames without I/O
- ``authenticator``, ``tls``, ``proxy``: SASL, TLS and proxies
- ``environment``: a client's source of time, randomness and threads
"""
