"""Actions against slow nodes: what is known of nodes, what is allowed, what is under way."""
