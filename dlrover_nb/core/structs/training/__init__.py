"""What a job has done: rows, samples of its speed, checkpoints, failures."""
