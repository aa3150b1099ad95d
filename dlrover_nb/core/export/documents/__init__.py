"""Documents of a job, one module for each kind, with what some of them share."""
