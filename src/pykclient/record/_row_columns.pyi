from pykclient.record.row_columns import encode_rows as encode_rows
from pykclient.record.row_columns import gather as gather
from pykclient.record.row_columns import gather_headers as gather_headers
from pykclient.record.row_columns import group_rows as group_rows
from pykclient.record.row_columns import oversized as oversized
from pykclient.record.row_columns import upper_bound as upper_bound
from pykclient.record.row_columns import widened as widened
