"""The driver of external programs: variables, logs, requests of their services."""
