from pykclient.record.row_columns import (
    encode_rows as encode_rows,
    fingerprint as fingerprint,
    gather as gather,
    gather_headers as gather_headers,
    group_rows as group_rows,
    oversized as oversized,
    upper_bound as upper_bound,
    widened as widened,
)
