"""The driver of a job: one loop around its sans-IO master and controller, and what the loop needs."""
