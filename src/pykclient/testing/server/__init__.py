"""The server side of connections, between sockets and handlers (Java: kafka.network, kafka.server).

- ``socket_server``, ``processor``: listeners and connections
- ``kafka_apis``: the dispatch of requests to handlers
- ``listener_channel_builder``, ``sasl_server_authenticator``: security
"""
