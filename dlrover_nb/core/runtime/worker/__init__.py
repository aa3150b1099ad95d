"""A worker: its loop over shards and batches, and its connections to the parameter servers."""
