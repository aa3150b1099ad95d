"""Qore-DL: requirements of a job, and decisions by its deadline."""
