"""A service on Kubernetes: the manifest, and the code that reads its settings."""
