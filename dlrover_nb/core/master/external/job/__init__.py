"""What the master knows of an external job: its nodes, worlds, shards, rates, and what programs report."""
