"""Rows: of results as data, behind `to_frame` and ``--json``, and of jobs, the same in every list of jobs."""
