"""The sans-IO controller of a job: events in, orders out."""
