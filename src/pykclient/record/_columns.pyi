from pykclient.record.columns import ColumnCursor as ColumnCursor, decode_batches as decode_batches
