from pykclient.aio.awaited_sends import AwaitedSends as AwaitedSends
