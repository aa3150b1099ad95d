"""The driver of parameter servers and workers: messages to nodes, checkpoints, files of the run."""
