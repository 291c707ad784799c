"""The transaction coordinator, and what partition leaders do for transactions (Java: kafka.coordinator.transaction)."""
