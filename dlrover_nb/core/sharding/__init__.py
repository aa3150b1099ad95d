"""Dynamic data sharding: who works on which rows, counted exactly."""
