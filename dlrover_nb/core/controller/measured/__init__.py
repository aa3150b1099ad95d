"""What reports say of a job: speed and memory by plan, and what the host took of them."""
