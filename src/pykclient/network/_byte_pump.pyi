from pykclient.network.byte_pump import byte_pump as byte_pump
