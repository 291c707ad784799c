from pykclient.protocol.wire import Reader as Reader, Writer as Writer
