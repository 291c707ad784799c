from pykclient.network.transport_layer import (
    byte_pump as byte_pump,
    plaintext_frame_stream as plaintext_frame_stream,
)
