from pykclient.protocol.wire import Reader as Reader
from pykclient.protocol.wire import Writer as Writer
