from pykclient.network.poller import new_poller as new_poller
