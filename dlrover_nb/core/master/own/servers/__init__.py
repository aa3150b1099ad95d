"""The group of parameter servers: who keeps which buckets, moves between them, and their restart."""
