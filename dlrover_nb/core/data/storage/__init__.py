"""Which files a job's data are, where they are fetched and unpacked, and the numbers of their rows."""
