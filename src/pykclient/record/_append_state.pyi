from pykclient.record.append_state import AppendState as AppendState
