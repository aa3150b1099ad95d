"""Kubernetes objects of a job as plain documents: pure functions, no cluster is contacted."""
