"""Our clients beside others: each client reads what any other writes, on old and new brokers."""
