from pykclient.network.network_send import NetworkSend as NetworkSend
