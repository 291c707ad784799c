from pykclient.producer.record_fields import BatchState as BatchState
from pykclient.producer.record_fields import FutureState as FutureState
from pykclient.producer.record_fields import ResultState as ResultState
from pykclient.producer.record_fields import SharedDelivery as SharedDelivery
from pykclient.producer.record_fields import TxnPartitionState as TxnPartitionState
from pykclient.producer.record_fields import keep_spares as keep_spares
