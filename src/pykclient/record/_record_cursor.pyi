from pykclient.record.record_cursor import decode_batches as decode_batches
from pykclient.record.record_cursor import decode_into as decode_into
