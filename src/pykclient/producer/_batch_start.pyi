from pykclient.producer.batch_start import BatchStart as BatchStart
