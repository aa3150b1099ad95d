"""Backends: what starts, stops and watches the nodes of a job, one module per kind of cluster."""
