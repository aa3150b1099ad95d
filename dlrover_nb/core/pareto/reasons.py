"""One computed sentence on why a plan is as fast as predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.resources import Role, diff

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.structs.decisions import TermShare
    from dlrover_nb.core.structs.resources import ResourcePlan

PHRASES = {
    "gradients": "computing gradients",
    "updates": "the PS applying gradients",
    "sync": "exchanging dense parameters",
    "embeddings": "waiting for embedding rows",
    "constant": "work that no resource speeds up",
    "contention": "workers waiting for shared resources",
    "barrier": "waiting for the slowest worker",
    "dense": "the PS working on dense parameters",
    "connections": "communicating with every PS",
    "ring": "passing gradients around the ring",
    "hops": "latency of the ring, which each worker adds to",
    "gather": "gathering embedding rows of the other workers",
    "host": "waiting for processors that other work on the host uses",
}
FELT = 0.02  # of an iteration: smaller changes get no reason


def change_words(before: ResourcePlan, after: ResourcePlan) -> str:
    """Say in words what changes: ``2 more workers, 0.5 instead of 0.25 cpu per PS``."""
    words = []
    for change in diff(before, after).changes:
        name = "PS" if change.role is Role.PS else "worker"
        if change.added:
            plural = "s" if abs(change.added) != 1 and name == "worker" else ""
            words.append(f"{abs(change.added)} {'more' if change.added > 0 else 'fewer'} {name}{plural}")
        if change.before.cpu != change.after.cpu:
            words.append(f"{change.after.cpu:g} instead of {change.before.cpu:g} cpu per {name}")
        if change.before.memory_mib != change.after.memory_mib:
            words.append(f"{change.after.memory_mib} instead of {change.before.memory_mib} MiB per {name}")
    return ", ".join(words) or "no change"


def reason(
    before: tuple[ResourcePlan, tuple[TermShare, ...]],
    after: tuple[ResourcePlan, tuple[TermShare, ...]],
    *,
    identified: Collection[str],
) -> str:
    """Explain the step from one plan to another by the term of the iteration that it shortens most.

    Parameters
    ----------
    before, after
        A plan and the breakdown of its predicted iteration.
    identified
        Terms whose share the data determines; other shares are not stated.
    """
    change = change_words(before[0], after[0])
    if change == "no change":
        return "This is the current plan."
    cuts = [(a.seconds - b.seconds, a, b) for a, b in zip(before[1], after[1], strict=True)]
    saved, term, shorter = max(cuts, key=lambda cut: cut[0])
    total_before, total_after = (sum(t.seconds for t in side[1]) for side in (before, after))
    lead = f"{change[0].upper()}{change[1:]}"
    longer = total_after / total_before - 1
    if saved > FELT * total_before and term.term in identified:
        left = shorter.seconds / term.seconds
        return f"{term.share:.0%} of an iteration is {PHRASES[term.term]}; {change} {_shorten(left)}."
    if longer < -FELT:
        return f"{lead}: an iteration takes {_longer(longer)}; which part of it changes is not measured yet."
    if after[0].worker.count > before[0].worker.count:
        return f"{lead} side by side, while an iteration takes {_longer(longer)}."
    return f"{lead}: an iteration takes {_longer(longer)}."


def _shorten(left: float) -> str:
    return "halve it" if abs(left - 0.5) < 0.03 else f"shorten it by {1 - left:.0%}"


def _longer(longer: float) -> str:
    if abs(longer) < FELT:
        return "as long as before"
    return f"{abs(longer):.0%} {'longer' if longer > 0 else 'less'}"
