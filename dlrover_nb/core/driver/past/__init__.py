"""Jobs that ended, and earlier moments of jobs."""
