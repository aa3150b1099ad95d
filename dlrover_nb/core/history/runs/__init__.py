"""Runs of jobs: their plans, decisions and series, and what later jobs read of them."""
