"""What each process of a job has: an agent to its master, limits, accounts of its time, and output."""
