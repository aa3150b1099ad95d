"""Columns of the data: their features, types and rows."""
