"""Controllers of others, played on a real API server by their rules."""
