"""What the job master knows of its job, and the changes of it under way."""
