from pykclient.network.selector import new_poller as new_poller
