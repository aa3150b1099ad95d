"""Kubeconfigs for tests."""

from __future__ import annotations

from pathlib import Path

import yaml

SECRET = "do-not-print-me"


def a_kubeconfig(path, server="http://127.0.0.1:9", user=None, **context):
    """Write a kubeconfig and return its path."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": SECRET} if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"} | context}],
        "current-context": "here",
    }
    Path(path).write_text(yaml.safe_dump(config))
    return str(path)
