"""TLS: between the bytes of a socket and the frames of a channel.

- ``ssl_factory``: contexts from a configuration
- ``ssl_transport_layer``: the engine without I/O, and the transport of a channel
- ``ssl_failures``: the causes of failed handshakes, as AuthenticationErrors
"""
