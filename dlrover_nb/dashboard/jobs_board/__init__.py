"""The list of all jobs as data: rows, filters, totals, and what has changed. All pure, but `boards`."""
