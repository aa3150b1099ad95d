"""Results as data: the tables behind `to_frame` and ``--json``."""
