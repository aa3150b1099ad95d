"""The way to a job's master: calls and answers, and what carries them."""
