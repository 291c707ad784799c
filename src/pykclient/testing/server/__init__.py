"""The server side of connections, between sockets and handlers (Java: kafka.network, kafka.server).

- ``socket_server``, ``processor``, ``request_channel``: listeners, connections, and the way to the handlers
- ``kafka_apis``: the dispatch of requests
- ``listener_channel_builder``, ``sasl_server_authenticator``, ``standard_authorizer``: security
- ``quotas``: client quotas
"""
