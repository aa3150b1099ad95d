"""What services of a cluster and of a team share in the database, one store each."""
