"""The server side of connections, between sockets and handlers (Java: kafka.network, kafka.server)."""
