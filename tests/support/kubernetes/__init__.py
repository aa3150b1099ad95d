"""A real Kubernetes for tests, its objects, and programs that run in its pods."""
