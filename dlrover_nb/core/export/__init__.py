"""Documents for other systems: one pure function from a job and a plan per format, and files on request."""
