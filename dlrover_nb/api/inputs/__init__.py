"""What people hand in: a job with its parts, and sizes of its plan."""
