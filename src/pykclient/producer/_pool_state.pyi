from pykclient.producer.pool_state import Loan as Loan
from pykclient.producer.pool_state import PoolState as PoolState
