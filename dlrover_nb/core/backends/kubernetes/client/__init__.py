"""The API server: who we are there, calls, errors, watches."""
