from pykclient.record.record_cursor import decode_batches as decode_batches, decode_into as decode_into
