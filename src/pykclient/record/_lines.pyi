from pykclient.record.lines import split_lines as split_lines
