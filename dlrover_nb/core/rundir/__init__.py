"""The run folder of a job on disk: job file, journal, checkpoints, logs, and when it is deleted."""
