"""A server whose people sign in by a header."""

from support.dashboard.served_team import client, module_path, served, sign_in, team

__all__ = ["client", "module_path", "served", "sign_in", "team"]
