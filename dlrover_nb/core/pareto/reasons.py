"""One computed sentence on why a plan is as fast as predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.structs.decisions.candidates import HOST, REST
from dlrover_nb.core.structs.plan.resources import Role, diff

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.structs.decisions.candidates import TermShare
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

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
    HOST: "waiting for processors that other work on the host uses",
    REST: "not explained by the plan",
}
FELT = 0.02  # of an iteration: smaller changes get no reason
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


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
    return and_list(words) or "no change"


def reason(
    before: tuple[ResourcePlan, tuple[TermShare, ...]],
    after: tuple[ResourcePlan, tuple[TermShare, ...]],
    *,
    identified: Collection[str],
    gain: float = 0.0,
) -> str:
    """Explain the step from one plan to another by the term of the iteration that it shortens most.

    Parameters
    ----------
    before, after
        A plan and the breakdown of its predicted iteration.
    identified
        Terms whose share the data determines; other shares are not stated.
    gain
        Throughput gained by the step, as a share of the present one.
    """
    change = change_words(before[0], after[0])
    if change == "no change":
        return "This is the current plan."
    saved, term, shorter = max(_cuts(before[1], after[1]), key=lambda cut: cut[0])
    total_before, total_after = (sum(t.seconds for t in side[1]) for side in (before, after))
    lead = f"{change[0].upper()}{change[1:]}"
    longer, rest = total_after / total_before - 1, (_rest(after[1]) - _rest(before[1])) / total_before
    if saved > FELT * total_before and term.term in identified:
        part = f"{percent(term.share)} of each step is {PHRASES[term.term]}"
        left = _left(shorter.seconds / term.seconds)
        return f"{part}; with {change} that takes {left}{_rest_words(rest)}."
    if longer < -FELT:
        is_rest = bool(identified) and -rest > FELT and -rest >= saved / total_before
        part = "the plan does not explain why" if is_rest else "we cannot tell yet which part gets faster"
        return f"{lead}: each step takes {_longer(longer)}; {part}."
    if after[0].worker.count > before[0].worker.count:
        workers = f"{count_word(after[0].worker.count).capitalize()} workers run in parallel"
        return f"{workers}; each step takes {_longer(longer)}, so throughput {_rises(gain)}."
    return f"{lead}: each step takes {_longer(longer)}."


def _cuts(
    before: tuple[TermShare, ...], after: tuple[TermShare, ...]
) -> list[tuple[float, TermShare, TermShare]]:
    """Return by how many seconds each part becomes shorter, with the part before and after."""
    pairs = zip(before, after, strict=True)
    return [(b.seconds - a.seconds, b, a) for b, a in pairs if b.term != REST]


def _rest(breakdown: tuple[TermShare, ...]) -> float:
    """Return the seconds that no term explains; negative: the iteration is shorter than its terms."""
    return sum(part.seconds for part in breakdown if part.term == REST)


def _rest_words(rest: float) -> str:
    """Say which part of the present iteration is saved or added beside what the plan changes."""
    if abs(rest) < FELT:
        return ""
    side = f"{percent(rest)} longer than that" if rest > 0 else f"another {percent(-rest)} shorter"
    return f"; each step is {side}, and the plan does not explain why"


def _left(left: float) -> str:
    """Say how long something takes that took a given part longer."""
    return "half as long" if abs(left - 0.5) < 0.03 else f"{percent(1 - left)} less time"


def _longer(longer: float) -> str:
    if abs(longer) < FELT:
        return "as long as before"
    return f"{percent(abs(longer))} {'longer' if longer > 0 else 'less time'}"


def _rises(gain: float) -> str:
    if abs(gain) < FELT:
        return "stays the same"
    return f"{'rises' if gain > 0 else 'falls'} {percent(abs(gain))}"


def count_word(n: int) -> str:
    """Return a number as text has it: a word up to ten."""
    return _COUNTS[n] if n < len(_COUNTS) else str(n)
