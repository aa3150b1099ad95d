"""The one way in for commands: rights, four eyes, idempotency and the audit, the same for every entry."""
