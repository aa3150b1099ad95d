"""What runs in the processes of a job: parameter servers, workers, and the pods around them.

`node` is the way in, `pod` the same in a pod; `ps` and `worker` are the two roles, `allreduce` that of
replicas. Below them `peers` and `checkpoints` keep parameters beyond the life of a process, `process` is what
each node has (its connection to the master, limits, accounts of time, output), `exchange` the messages
between nodes, `store` the rows, `kernels` the compiled code. Imports stay light: a PS needs numpy and ZeroMQ
alone, and torch is loaded by workers.
"""
