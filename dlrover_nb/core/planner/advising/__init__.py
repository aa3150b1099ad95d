"""What to propose, why, and what would change that."""
