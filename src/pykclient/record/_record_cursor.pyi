from pykclient.record.record_cursor import RecordCursor as RecordCursor, decode_batches as decode_batches
