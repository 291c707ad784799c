"""The server side of connections: from sockets to handlers and back (Java: kafka.network, kafka.server)."""
