"""What becomes of rows that cannot be trained, and what evaluations say of those that were."""
