"""What must hold of a job whose cluster refuses nodes, or lets them wait: it keeps to what it was told, and says so.

What a refusal told is judged by the rule itself, not by what the job made of it: sizes beyond a limit that was named, and
those that are at least as large as one that was refused where no node so large had ever been made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from simulation.promises import PromiseBrokenError

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from simulation.events import JobWorld

AUTO = "auto"  # who decides in auto mode
LEARNT_AFTER_S = 2.0
LONGEST_TURN_S = 2.0  # of a master that is at work
SAID_AFTER_S = 30.0  # what nodes wait for, and why nodes are missing
CHANGE_LIMIT_S = 300.0  # of a change without a step of any node: beyond all limits of time of one
FOUND = ("room was found", "nodes have what they waited for")
WAITS = ("exceeded quota", "no room", "waiting for room", "the cluster refuses", "the cluster now refuses")


class RulesAudit:
    """Follows one job."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world
        self._n_decision = 0
        self._mark: object = None
        self._mark_s = self._up_since_s = self._turn_s = 0.0
        self._short_s = 0.0  # for so long nodes have been missing, while a master was at work
        self._held_s: dict[str, float] = {}  # the same, of nodes that wait for the quota
        self._backend: object = None

    def forbidden(self, plan: ResourcePlan | None) -> bool:
        """Whether a job was told that the cluster makes no node of this plan."""
        admission = getattr(self._world.backend, "admission", None)
        if plan is None or admission is None:
            return False
        learnt_s = self._world.elapsed_s - LEARNT_AFTER_S
        known = [refusal for refusal in admission.refusals if refusal.elapsed_s < learnt_s]
        return any(refusal.forbids(need) for refusal in known for need in _needs(plan))

    def check_taken(self, decision: Decision, plan: ResourcePlan | None, before: JobSnapshot) -> None:
        """Check a decision that a client was told is taken."""
        if plan not in {before.target, before.ran} and self.forbidden(plan):
            raise PromiseBrokenError("a size that the cluster refuses is taken", decision.words)

    def after_turn(self) -> None:
        """Check what holds at every moment."""
        world, now = self._world, self._world.now
        if world.backend is not self._backend:
            self._backend, self._up_since_s = world.backend, world.elapsed_s
            self._mark = None
        passed_s, self._turn_s = world.elapsed_s - self._turn_s, world.elapsed_s
        if now.phase.is_final or world.elapsed_s < self._up_since_s + LEARNT_AFTER_S:
            self._mark_s, self._short_s = world.elapsed_s, 0.0
            return
        self._check_asked(now)
        self._check_words(now)
        self._check_change(now)
        self._check_missing(now, min(passed_s, LONGEST_TURN_S))

    def _check_asked(self, now: JobSnapshot) -> None:
        """Check that the job itself asks for no size that the cluster refuses."""
        for each in now.proposals:
            if each.status == "pending" and self.forbidden(each.candidate.plan):
                raise PromiseBrokenError(
                    "a size that the cluster refuses is proposed", each.candidate.plan.short
                )
        new, self._n_decision = now.decisions[self._n_decision :], len(now.decisions)
        plans = {each.id: each.candidate.plan for each in now.proposals}
        for decision in (each for each in new if each.by == AUTO):
            plan = decision.plan or plans.get(decision.proposal or "")
            if plan != now.ran and self.forbidden(plan):
                raise PromiseBrokenError("a size that the cluster refuses is applied", decision.words)

    def _check_words(self, now: JobSnapshot) -> None:
        """Check that no node that never was made is said to be lost, and no room that was not there to be found."""
        unmade = getattr(self._world.backend, "unmade", set[str]())
        lost = [name for name in unmade if any(f"{name} was lost" in line for line in now.story)]
        if lost:
            raise PromiseBrokenError("a node is called lost that never was made", ", ".join(sorted(lost)))
        n_said = sum(any(words in line for words in FOUND) for line in now.story)
        if n_said > self._world.rules.n_found and not now.damage:
            raise PromiseBrokenError("it says that room was found, and none was", now.message)

    def _check_change(self, now: JobSnapshot) -> None:
        """Check that a change of plan ends, or goes back."""
        mark = now.under_way, tuple((node.id, node.phase) for node in now.nodes)
        if mark != self._mark or not now.under_way:
            self._mark, self._mark_s = mark, self._world.elapsed_s
        if self._world.elapsed_s > self._mark_s + CHANGE_LIMIT_S:
            words = f"{now.under_way} to {now.target.short}: {now.message}"
            raise PromiseBrokenError("a change neither ends nor goes back", words)

    def _check_missing(self, now: JobSnapshot, passed_s: float) -> None:
        """Check that a job that lacks nodes by a rule says so."""
        world = self._world
        held = {node.id: node for node in now.nodes if node.id in getattr(world.backend, "held", {})}
        self._held_s = {name: self._held_s.get(name, 0.0) + passed_s for name in held}
        n_there = {
            role: sum(node.role is role and node.id not in held for node in now.nodes) for role in Role
        }
        is_short = any(n_there[role] < now.target.role(role).count for role in Role)
        is_short = is_short and now.phase is not JobPhase.EVALUATING and world.rules.bind(world.elapsed_s)
        self._short_s = self._short_s + passed_s if is_short else 0.0
        if self._short_s < SAID_AFTER_S:
            return
        silent = [name for name, node in held.items() if "exceeded quota" not in node.waits_for]
        silent = [name for name in silent if self._held_s[name] > SAID_AFTER_S]
        is_said = any(words in line for line in (now.message, *now.story) for words in WAITS)
        if silent or not is_said:
            words = f"{n_there} of {now.target.short}, {', '.join(silent)} {now.phase}: {now.message}"
            raise PromiseBrokenError("it does not say what it waits for", words)


def _needs(plan: ResourcePlan) -> list[tuple[float, int]]:
    return [(plan.role(role).cpu, plan.role(role).memory_mib) for role in Role]
