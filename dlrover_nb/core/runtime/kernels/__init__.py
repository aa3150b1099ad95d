"""The inner loops of a parameter server."""
