"""The brain: plans for all jobs of a cluster together, and hands each a quota; masters alone change jobs.

`cluster_plan` decides from what jobs offer, without any I/O. `planning_round` asks the masters and hands
out, and `service` does that at intervals, while it holds the lease by which one of several brains plans.

Notes
-----
A quota limits what auto mode of a job may take, so a brain that is slow, wrong or gone cannot break a job:
the master goes on with its own plan, and forgets a quota that is not renewed.
"""
