"""Share groups: the records in delivery, their state in a log, and the sessions of share consumers (KIP-932)."""
