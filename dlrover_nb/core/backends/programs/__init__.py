"""Programs of external jobs as processes of a machine: what local processes and nodes of Ray share."""
