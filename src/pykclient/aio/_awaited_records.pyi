from pykclient.aio.awaited_records import AwaitedRecords as AwaitedRecords, AwaitedSends as AwaitedSends
