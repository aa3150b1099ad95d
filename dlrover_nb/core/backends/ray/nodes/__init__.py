"""Nodes as actors of Ray: their process, and a spare one that waits for the next worker and its room."""
