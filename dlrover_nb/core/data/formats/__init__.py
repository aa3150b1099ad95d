"""Rows in files: one module for each format, with what it needs to find its records."""
