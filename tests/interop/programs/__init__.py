"""Programs for kafka-python, run as they are and with the import changed (tests/interop/test_drop_in.py)."""
