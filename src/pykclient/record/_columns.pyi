from pykclient.record.columns import decode_batches as decode_batches, decode_rows as decode_rows
