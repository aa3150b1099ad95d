"""What processes of a job say to each other and are started with."""
