"""Rows that a user holds as objects: tables in memory, and sources of rows of their own."""
