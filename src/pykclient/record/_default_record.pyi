from pykclient.record.default_record import (
    RecordCursor as RecordCursor,
    decode_batches as decode_batches,
    summarize_records as summarize_records,
)
