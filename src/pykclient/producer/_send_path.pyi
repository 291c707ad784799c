from pykclient.producer.send_path import SendPath as SendPath
from pykclient.producer.send_path import SendState as SendState
