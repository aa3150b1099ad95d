"""Write the Roles in deploy/ from the table of rights: `python tools/make_roles.py`.

`dlrover_nb/core/manifests/role_rules.py` is the one place where they are decided; a test fails when
these files, or the tables of deploy/README.md, say anything else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from dlrover_nb.core.manifests.role_rules import (
    OPERATOR,
    SEE_NODES,
    SEE_QUOTAS,
    SEE_USE,
    SHIPPED,
    USER,
    VIEWER,
    Right,
    master_rights,
    owner_rights,
    role,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
HEAD = "# Made by tools/make_roles.py from the table of rights; README.md says what each rule is for.\n"
NODES_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "dlrover-nb-nodes"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dlrover-nb-nodes"},
    "subjects": [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Group",
            "name": "system:serviceaccounts:dlrover-nb",
        }
    ],
}
SEEN_BY_MASTERS = (SEE_NODES, SEE_USE, *SEE_QUOTAS)  # of the cluster, where its administrator grants it
TABLES = {
    "user": USER,
    "operator": OPERATOR,
    "viewer": VIEWER,
    "master": master_rights("JOB"),
    "master in an ElasticJob": owner_rights("JOB", "ElasticJob"),
    "nodes": SEEN_BY_MASTERS,
}


def files() -> dict[str, str]:
    """Return what each file, by its path below deploy/, is to hold."""
    roles = [role(name, rights) for name, rights in SHIPPED.items()]
    return {
        "base/roles.yaml": HEAD
        + yaml.safe_dump_all(roles, sort_keys=False, default_flow_style=None, width=118),
        "components/nodes/nodes.yaml": HEAD
        + yaml.safe_dump_all(
            [role("dlrover-nb-nodes", SEEN_BY_MASTERS), NODES_BINDING],
            sort_keys=False,
            default_flow_style=None,
            width=118,
        ),
        "README.md": with_tables((DEPLOY / "README.md").read_text()),
    }


def with_tables(text: str) -> str:
    """Return the README with each table between its marks as the rights say."""
    for name, rights in TABLES.items():
        marks = rf"(<!-- rights of {name} -->\n).*?(<!-- end -->)"
        text, n = re.subn(marks, lambda m, rights=rights: m[1] + table(rights) + m[2], text, flags=re.DOTALL)
        assert n == 1, f"deploy/README.md has no place for the rights of {name}"
    return text


def table(rights: Iterable[Right]) -> str:
    """Return rights as a table of Markdown."""
    rows = [
        f"| `{r.resource}`{' ' + ', '.join(f'`{n}`' for n in r.names) if r.names else ''} "
        f"| {', '.join(r.verbs)} | {r.why}{' (optional)' if r.optional else ''} |"
        for r in rights
    ]
    return "\n".join(["| what | may | to |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    for path, text in files().items():
        (DEPLOY / path).write_text(text)
