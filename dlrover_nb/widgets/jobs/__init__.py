"""Static views of a running job: its state, plans, reasons and decisions."""
