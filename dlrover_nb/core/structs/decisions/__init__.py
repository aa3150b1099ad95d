"""What people and policies decide about a job, and what they are asked."""
