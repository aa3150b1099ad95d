"""What the controller remembers: the job, its money, its story, what can be undone."""
