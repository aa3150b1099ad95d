"""Dashboards for tests: real servers over clusters that a test moves by hand."""
