"""Dynamic data sharding: which worker trains which rows, counted exactly."""
