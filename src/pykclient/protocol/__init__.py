"""What the bytes on a connection mean: primitives, messages, headers. No sockets, no clocks."""
