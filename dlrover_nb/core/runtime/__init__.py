"""What runs in the cluster: parameter servers, workers, and the mind of the job master that leads them.

Node side: `node` is the way in; `ps` and `worker` are the two roles, each with an `agent` to its master;
`line`, `wire` and `exchange` carry parameters between them, `store` and `checkpoint` keep them. `trainer` and
`batches` are the training loop, which `local` runs in one process as the baseline. Imports stay light: a PS
needs numpy and ZeroMQ only, and torch is loaded by workers alone.
"""
