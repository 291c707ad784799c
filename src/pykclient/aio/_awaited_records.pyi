from pykclient.aio.awaited_records import AwaitedRecords as AwaitedRecords
from pykclient.aio.awaited_records import AwaitedSends as AwaitedSends
