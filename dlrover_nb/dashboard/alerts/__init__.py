"""Alerts of a team's server: one loop beside the poller finds them, and outboxes carry them out.

The rules are `core.alerts`, which reads no clock. Here are the loop that feeds them, what sends an alert to
a webhook or through apprise, and what the pages show. Nothing here is done once per viewer, and nothing that
sends can hold the loop up.
"""
