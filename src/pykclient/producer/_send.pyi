from pykclient.producer.send import SendPath as SendPath, SendState as SendState
