"""pykclient beside its peers, on one real broker, in one interleaved run."""
