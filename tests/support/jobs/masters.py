"""An in-process job master for the views' tests: it keeps a snapshot and answers decisions as a real one does.

The decision core is tested elsewhere; here its answers are steps that a test takes by hand.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, CapacityError, NotFoundError, StaleDecisionError
from dlrover_nb.core.rundir.node_logs import newest
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, ProposalStatus, Verdict
from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import check_fits
from dlrover_nb.core.structs.views.snapshot import JobSnapshot, PlanMarker, SeriesChunk
from support.jobs import builders

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import ShardChoice


class Master:
    """A `MasterLink` over a snapshot that the test changes."""

    def __init__(self, snapshot: JobSnapshot | None = None, series: SeriesChunk | None = None) -> None:
        self.lock = threading.RLock()
        self._state = snapshot or builders.snapshot()
        self.chunks = [series or builders.series()]
        self.asked: list[Decision] = []
        self.chosen: list[ShardChoice] = []
        self.explained: list[str | None] = []
        self.weighed: list[tuple[ResourcePlan, ...]] = []
        self.reachable = True

    @property
    def state(self) -> JobSnapshot:
        """What it tells; a test may change it while others ask, and none of these takes that back."""
        return self._state

    @state.setter
    def state(self, state: JobSnapshot) -> None:
        with self.lock:
            self._state = state

    def snapshot(self) -> JobSnapshot:
        with self.lock:
            if not self.reachable:
                raise BackendError("the master of quick-start does not answer; it is asked again")
            self.state = replace(self.state, at_s=self.state.at_s + 0.001)  # or it would be taken for stale
            return self.state

    def series(self, cursor: int) -> SeriesChunk:
        with self.lock:
            fresh = [c for c in self.chunks if c.cursor > cursor]
            return fresh[0] if fresh else SeriesChunk(cursor, {}, {})

    def decide(self, decision: Decision) -> Decision:
        with self.lock:
            if decision.verdict in {Verdict.SCALE, Verdict.MODE}:
                return self._change(decision)
            if decision.verdict is Verdict.MITIGATE or decision.proposal in self._mitigations():
                return self._mitigate(decision)
            opened = self.state.open_proposal
            if opened is None or decision.proposal != opened.id:
                raise StaleDecisionError(
                    f"proposal {decision.proposal} is no longer open", ("t+299 superseded by p3",)
                )
            made = replace(decision, id=f"d{len(self.state.decisions) + 1}")
            self.asked.append(made)
            status = {
                Verdict.ACCEPT: ProposalStatus.ACCEPTED,
                Verdict.OVERRIDE: ProposalStatus.OVERRIDDEN,
                Verdict.REJECT: ProposalStatus.REJECTED,
            }[decision.verdict]
            self.state = replace(self.state, decisions=(*self.state.decisions, made))
            self._set_status(opened.id, status)
            return made

    def _change(self, decision: Decision) -> Decision:
        """Make a change that answers no proposal, and keep what takes it back."""
        now, latest = self.state, self.state.undo
        if decision.seen not in {"", now.version}:
            raise StaleDecisionError(
                f"{decision.words} was decided as of {decision.seen}; it is {now.version} now"
            )
        if decision.undoes and (latest is None or latest.undoes != decision.undoes):
            raise StaleDecisionError(f"{decision.undoes} is no longer the latest change")
        made = replace(decision, id=f"d{len(now.decisions) + 1}")
        self.asked.append(made)
        back = replace(
            made, by="", id="", why="", seen="", undoes=made.id,
            plan=made.plan and now.target, mode=made.mode and now.mode,
        )  # fmt: skip
        target, mode = made.plan or now.target, made.mode or now.mode
        self.state = replace(
            now, target=target, running=target, under_way="", mode=mode, undo=back, decisions=(*now.decisions, made),
            at_s=now.at_s + 1,
        )  # fmt: skip
        return made

    def _mitigations(self) -> set[str]:
        return {each.id for each in self.state.mitigations}

    def _mitigate(self, decision: Decision) -> Decision:
        """Order an action against stragglers, or answer one that is open."""
        now = self.state
        opened = now.open_mitigation
        if decision.verdict is not Verdict.MITIGATE and (opened is None or opened.id != decision.proposal):
            raise StaleDecisionError(f"{decision.proposal} is no longer open", ("t+299 superseded by m3",))
        made = replace(decision, id=f"d{len(now.decisions) + 1}")
        self.asked.append(made)
        is_no = decision.verdict is Verdict.REJECT
        status = ProposalStatus.REJECTED if is_no else ProposalStatus.ACCEPTED
        if decision.action is None:
            held = tuple(
                replace(each, status=status, decision="" if is_no else made.id)
                if each.id == decision.proposal
                else each
                for each in now.mitigations
            )
        else:
            name = f"m{len(now.mitigations) + 1}"
            ordered = Mitigation(
                name, "quick-start", decision.action, decision.why, "", now.at_s, None, status
            )
            held = (*now.mitigations, replace(ordered, decision=made.id))
        self.state = replace(
            now, mitigations=held, decisions=(*now.decisions, made), at_s=now.at_s + 1, undo=self._back(made)
        )
        return made

    def _back(self, made: Decision) -> Decision | None:
        """Return what takes a decision back; restarts cannot be undone, so what was undone before them can."""
        action = made.action
        if action is None or action.restart is not None or action.move is not None:
            return self.state.undo
        return Decision(Verdict.MITIGATE, "", 0.0, action=action, undoes=made.id)

    def begin(self, plan: ResourcePlan, decision: str) -> None:
        """Begin a change of plan that was decided."""
        with self.lock:
            now = self.state
            back = Decision(Verdict.SCALE, "", 0.0, plan=now.target, undoes=decision)
            self.state = replace(
                now, phase=JobPhase.RESCALING, target=plan, running=None, under_way=decision, undo=back,
                markers=(*now.markers, PlanMarker(now.at_s, now.target, 0.0, None)),
            )  # fmt: skip

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        with self.lock:
            if not self.reachable:
                raise BackendError("the master of quick-start does not answer; it is asked again")
            self.weighed.append(plans)
            now = self.state.target
            return tuple(Weighed(p, builders.candidate(p, now), self._refusal(p)) for p in plans)

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        with self.lock:
            names = [told.id for told in self.state.nodes]
        return newest({name: [LogLine(0.0, name, "INFO", f"{name} is up")] for name in names}, node, n_line)

    def explain(self, proposal: str | None) -> Explanation:
        with self.lock:
            if not self.reachable:
                raise BackendError("the master of quick-start does not answer; it is asked again")
            self.explained.append(proposal)
            shown = {p.id: p for p in self.state.proposals}
            told = shown.get(proposal) if proposal else self.state.open_proposal
            if proposal and told is None:
                raise NotFoundError(f"job quick-start has no proposal {proposal!r}")
            now = builders.candidate(self.state.target, self.state.target)
            if told is None:
                return Explanation(self.state.target, None, now, now, "no plan is surely better")
            return Explanation(
                told.candidate.plan, told.id, told.candidate, told.baseline, told.why, flip=told.flip
            )

    def _refusal(self, plan: ResourcePlan) -> str:
        if plan == self.state.target:
            return f"{plan} already runs; say what should change"
        try:
            check_fits(plan, self.state.capacity)
        except CapacityError as error:
            return str(error)
        return ""

    def choose(self, choice: ShardChoice) -> None:
        with self.lock:
            self.chosen.append(choice)
            rest = tuple(each for each in self.state.quarantined if each.shard != choice.shard)
            self.state = replace(self.state, quarantined=rest)

    def stop(self, by: str, why: str) -> None:
        raise BackendError(f"{by} may not stop quick-start here: {why}")

    def _set_status(self, proposal: str, status: ProposalStatus) -> None:
        proposals = tuple(replace(p, status=status) if p.id == proposal else p for p in self.state.proposals)
        self.state = replace(self.state, proposals=proposals, at_s=self.state.at_s + 1)

    def step(self, proposal: str, status: ProposalStatus) -> None:
        """Move a proposal on, as the master would; APPLIED makes its plan the running one."""
        with self.lock:
            self._set_status(proposal, status)
            if status == ProposalStatus.APPLIED:
                plan = next(p for p in self.state.proposals if p.id == proposal).candidate.plan
                marker = PlanMarker(self.state.at_s, plan, 2.4, builders.prediction(plan))
                self.state = replace(
                    self.state, running=plan, target=plan, markers=(*self.state.markers, marker)
                )

    def pass_time(self, n_s: int = 1) -> None:
        """Let the job train on for some seconds."""
        with self.lock:
            start = int(self.state.at_s - builders.START_S)
            cursor = self.chunks[-1].cursor + 1
            self.chunks.append(builders.series(start + n_s, start=start, cursor=cursor))
            self.state = replace(self.state, at_s=self.state.at_s + n_s)
