"""The Pareto front of cost and throughput: the space, the exact front, named picks."""
