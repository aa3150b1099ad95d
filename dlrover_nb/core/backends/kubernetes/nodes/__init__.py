"""Nodes of a job as pods: asked for, observed, resized, ended."""
