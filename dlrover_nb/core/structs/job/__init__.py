"""What a user asks for: the specification of a job, part by part."""
