"""The client side of a job: handles, clusters, past runs and trained models. It decides nothing."""
