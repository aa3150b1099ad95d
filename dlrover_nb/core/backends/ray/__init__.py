"""Ray as a backend of jobs: life cycle only; parameters never travel through Ray."""
