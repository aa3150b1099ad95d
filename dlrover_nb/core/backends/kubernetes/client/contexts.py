"""Names in the user's kubeconfig, and the one word that denotes a place; no client is loaded.

The file is read again only when it has changed, since completion asks at each key stroke.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import yaml

SCHEME = "kubernetes://"
IN_CLUSTER = "in-cluster"  # no context of a kubeconfig: the cluster around this pod
_DEFAULT = "~/.kube/config"


class Contexts(NamedTuple):
    """Names in a kubeconfig."""

    contexts: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


def kubernetes_address(context: str, namespace: str) -> str:
    """Return the word for a place on Kubernetes that the command line accepts."""
    name = "" if context == IN_CLUSTER else quote(context, safe=":@")
    return f"{SCHEME}{name}/{namespace}"


def known_contexts() -> Contexts:
    """Return contexts and their namespaces; nothing where no kubeconfig can be read."""
    names = (os.environ.get("KUBECONFIG") or _DEFAULT).split(os.pathsep)
    paths = [Path(name).expanduser() for name in names if name]
    return _read(tuple((path, path.stat().st_mtime_ns) for path in paths if path.is_file()))


@lru_cache(maxsize=1)
def _read(files: tuple[tuple[Path, int], ...]) -> Contexts:
    entries = [entry for path, _ in files for entry in _entries(path)]
    namespaces = ((entry.get("context") or {}).get("namespace") for entry in entries)
    return Contexts(
        tuple(dict.fromkeys(str(entry["name"]) for entry in entries)),
        tuple(dict.fromkeys(str(name) for name in namespaces if name)),
    )


def _entries(path: Path) -> list[dict[str, dict[str, str]]]:
    try:
        document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        return [entry for entry in document["contexts"] if isinstance(entry["name"], str)]
    except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError):
        return []  # `connect` reports what is wrong with it
