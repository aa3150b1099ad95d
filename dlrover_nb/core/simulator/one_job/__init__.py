"""One simulated job: its nodes, their speed and reports, and what changes them."""
