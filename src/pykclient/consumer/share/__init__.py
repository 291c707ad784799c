"""The consumer of share groups (KIP-932), whose members take single records instead of whole partitions."""
