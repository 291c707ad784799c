"""Programs for kafka-python, run unmodified and with the import changed (tests/interop/test_drop_in.py)."""
