"""Checkpoints of all parameter servers at one moment, their copies, and nodes that leave after them."""
