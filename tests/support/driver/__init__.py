"""Jobs with their loop: among played nodes in virtual time, or of real processes."""
