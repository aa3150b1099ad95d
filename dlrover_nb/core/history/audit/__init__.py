"""The audit of commands: one hash chain for all its writers, and searches in it."""
