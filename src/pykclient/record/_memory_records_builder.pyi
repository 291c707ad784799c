from pykclient.record.memory_records_builder import AppendState as AppendState, write_header as write_header
