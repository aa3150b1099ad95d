"""Jobs in pods: the master, its nodes, and the way to them through the API server."""
