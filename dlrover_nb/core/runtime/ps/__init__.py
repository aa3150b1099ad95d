"""A parameter server: it serves its part of the parameters and passes buckets on to others."""
