"""What a cluster has room for: machines, quotas, and the queues of Kueue."""
