"""Benchmarks of pykclient and its peers, on one real broker, in one interleaved run."""
