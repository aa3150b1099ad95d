"""Wishes for hosts in the documents of pods: preferences for machines, and the reason for people.

They are preferred, never required: a machine that has filled up must not make a pod wait. The scheduler adds
the weights to what it finds itself. A machine is named by its label of the host name: until Kubernetes 1.20
preferences for fields of a machine, such as its name, were ignored. The reason stands in annotations, so that
another master, and a user who describes the pod, can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.host_choice import MOST_WEIGHT
from dlrover_nb.core.manifests.pod_parts import PREFIX
from dlrover_nb.core.manifests.podspec import HOSTNAME
from dlrover_nb.core.structs.cluster.host_wish import HostWish

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.deadline.host_choice import Wish
    from dlrover_nb.core.manifests.kinds import Doc

WISHED_NOTE, WHY_NOTE = f"{PREFIX}wished-host", f"{PREFIX}wished-because"
MOST_TERMS = 8  # hosts behind them have weights that change nothing


def with_wish(pod: Doc, wish: Wish) -> Doc:
    """Return a pod that prefers the hosts of a wish, by their weights."""
    terms = [_term("In", host.key, weight) for host, weight in wish.ranked[:MOST_TERMS]]
    return _with_terms(pod, terms, HostWish(wish.first.name, wish.why))


def without_hosts(pod: Doc, slow: Iterable[tuple[str, str]]) -> Doc:
    """Return a pod that prefers any machine but some, where nothing is known of loads.

    Parameters
    ----------
    slow
        The machine and the node that is too slow there, of each.
    """
    pairs = tuple(slow)
    terms = [_term("NotIn", machine, MOST_WEIGHT) for machine, _ in pairs]
    hosts = " or ".join(machine for machine, _ in pairs)
    why = "; ".join(f"{node} is too slow on {machine}" for machine, node in pairs)
    return _with_terms(pod, terms, HostWish(f"any but {hosts}", why))


def wish_of(pod: Doc) -> HostWish | None:
    """Return the wish that a pod was created with; None: it had none."""
    notes = pod["metadata"].get("annotations") or {}
    if WISHED_NOTE not in notes:
        return None
    return HostWish(notes[WISHED_NOTE], notes.get(WHY_NOTE, ""), pod["spec"].get("nodeName") or "")


def _term(operator: str, hostname: str, weight: int) -> Doc:
    expression = {"key": HOSTNAME, "operator": operator, "values": [hostname]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def _with_terms(pod: Doc, terms: list[Doc], wish: HostWish) -> Doc:
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = pod["spec"].get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    of_nodes = of_nodes | {rule: [*(of_nodes.get(rule) or ()), *terms]}
    notes = (pod["metadata"].get("annotations") or {}) | {WISHED_NOTE: wish.host, WHY_NOTE: wish.why}
    return pod | {
        "metadata": pod["metadata"] | {"annotations": notes},
        "spec": pod["spec"] | {"affinity": affinity | {"nodeAffinity": of_nodes}},
    }
