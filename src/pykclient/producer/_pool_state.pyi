from pykclient.producer.pool_state import BorrowedMemory as BorrowedMemory
from pykclient.producer.pool_state import Lender as Lender
from pykclient.producer.pool_state import Loan as Loan
from pykclient.producer.pool_state import PoolState as PoolState
