"""Runs that ended, from the history: all of them, several compared, one at a moment."""
