"""Orders of a job master, and when to start a node again: for our own jobs and for those of others."""
