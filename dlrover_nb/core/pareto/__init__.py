"""Plans that nothing beats in both cost and throughput: the space, the exact front, named picks."""
