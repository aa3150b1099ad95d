"""Which columns a job uses and as what, from the keys that name them and a sample of rows."""
