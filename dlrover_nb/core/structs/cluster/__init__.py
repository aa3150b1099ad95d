"""What a cluster and its hosts have, and who may use it."""
