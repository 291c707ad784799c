from pykclient.record.columns import decode_batches as decode_batches
from pykclient.record.columns import decode_rows as decode_rows
