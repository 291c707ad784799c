from pykclient.network.frames import NetworkSend as NetworkSend
