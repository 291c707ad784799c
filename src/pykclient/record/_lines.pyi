from pykclient.record.lines import join_lines as join_lines
from pykclient.record.lines import split_lines as split_lines
