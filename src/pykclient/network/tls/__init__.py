"""TLS: between the bytes of a socket and the frames of a channel."""
