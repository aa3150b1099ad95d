"""Databases of the history: empty ones of each kind, and records to put into them."""
