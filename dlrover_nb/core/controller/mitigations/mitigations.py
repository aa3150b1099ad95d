"""Actions against stragglers of one job: reviewed, proposed, ordered, ended.

At each review the solution of the job (`JobSpec.stragglers`) is asked what would help, and the arbiter
whether that may be done now; under the policy `nearchus` cores move between the nodes of a role too
(`node_cores`). The first action that it admits is proposed; whether it is done is a decision
like any other: of a user in suggest mode, of auto mode at once. In manual mode nodes are watched and
nothing is proposed. Of other programs, only batch sizes and restarts of workers are proposed: nothing here
could carry out the rest. Sizes are left to the job's master where it balances them itself, and are not
proposed again where it could not set them.

An open action is kept while the arbiter admits one that does not differ materially, and new sizes for a
short window in any case, so that it does not change under a user's hands. One at a time: while an action is
under way no other is proposed, and a change of plan ends both, since both were decided on other nodes.

A rejected action, or one that was undone, is not proposed again until its node has recovered once; a global
one until one of the nodes that were slow then has. After a global action the next one waits for a short
window: until then, speeds are means over times before and after it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.controller.mitigations.mitigation_checks import MitigationContext, is_for_programs
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.arbiter import Limits, Order, arbitrate, recovered
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    MitigationChoice,
    SetSize,
    named,
)
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.solution_names import MEASURES
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    Mitigate,
    MitigationEnded,
    NodeLeft,
    NodeSizesSet,
    NodeStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.controller.mitigations.mitigation_book import MitigationBook
    from dlrover_nb.core.controller.mitigations.node_cores import NodeCores
    from dlrover_nb.core.controller.mitigations.slow_nodes import SlowNodes
    from dlrover_nb.core.controller.plans.rollouts import Rollouts
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.controller.state.undo_log import UndoLog
    from dlrover_nb.core.straggler.arbiter import Facts, Refusal
    from dlrover_nb.core.straggler.situation import Situation
    from dlrover_nb.core.straggler.solutions import Solution
    from dlrover_nb.core.structs.decisions.actions import Action, Proposed
    from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation
    from dlrover_nb.core.structs.views.events import PlanApplied

logger = logging.getLogger(__name__)

MATERIAL = 0.1  # of a worker's samples or rate: less does not replace an open action


class Mitigations:
    """Proposes and orders actions against stragglers of one job.

    Parameters
    ----------
    state, story, undo
        The job, its story, and the log of what can be undone.
    nodes, cores
        Its nodes, and how their cores may change.
    book
        Its actions.
    solution
        What is asked what would help.
    """

    def __init__(  # noqa: PLR0913 - its parts, all by keyword
        self,
        *,
        state: JobState,
        story: Story,
        undo: UndoLog,
        nodes: SlowNodes,
        cores: NodeCores,
        book: MitigationBook,
        solution: Solution,
    ) -> None:
        self._solution = solution
        self._state, self._story, self._undo = state, story, undo
        self._nodes, self._cores, self._book = nodes, cores, book
        self._last_at_s: dict[str, float] = {}  # by node: when the last action was ordered
        self._by = ""  # decided on the last action
        self._global_at_s: float | None = None  # when the last global one was ordered, or ended
        self._rejected: dict[str, frozenset[str]] = {}  # by subject: the nodes of which one has to recover
        self._told: dict[tuple[str, str], frozenset[str]] = {}  # refusals: as above

    @property
    def context(self) -> MitigationContext:
        """What decisions on actions are checked against."""
        return MitigationContext(
            self._state.spec, self._nodes.nodes, self._book.running, self._cores.room(None)
        )

    @property
    def under_way(self) -> MitigationChoice | None:
        """The action that was ordered and has not ended, as it was ordered."""
        running = self._book.running
        if running is None:
            return None
        return MitigationChoice(running.decision, running.action, self._by, running.why)

    # reviews

    def is_due(self, at_s: float) -> bool:
        """Whether a review is due."""
        return not self._state.phase.is_final and self._nodes.is_due(at_s)

    def review(self, at_s: float, *, may_propose: bool) -> None:
        """Find which nodes are slow; where it may be, propose what helps.

        Parameters
        ----------
        may_propose
            Whether the job trains on a steady plan.
        """
        self._nodes.review(at_s)
        slow = self._nodes.slow
        self._rejected = {name: nodes for name, nodes in self._rejected.items() if _lasts(nodes, slow)}
        self._told = {name: nodes for name, nodes in self._told.items() if _lasts(nodes, slow)}
        may_propose = may_propose and self._state.mode is not Mode.MANUAL
        if not may_propose and self._book.open is None:
            return
        running = self._book.running
        situation = replace(self._nodes.situation(at_s), ps_states=self._cores.ps_states(at_s))
        under_way = () if running is None else (running.action.action,)
        facts = self._nodes.facts(at_s, situation, under_way, self._last_at_s)
        self._withdraw(facts)
        if may_propose:
            self._propose(situation, facts)

    def _withdraw(self, facts: Facts) -> None:
        """Close the open action if its node has recovered."""
        opened = self._book.open
        if opened is not None:
            for refusal in recovered((Order(opened.action.action, opened.why),), facts):
                self.expire(facts.at_s, refusal.reason)

    def _propose(self, situation: Situation, facts: Facts) -> None:
        running, at_s = self._book.running, facts.at_s
        try:
            answers = self._solution(self._nodes.findings, situation)
        except InvalidValueError as error:  # no sizes sum to the global batch
            self._tell("solution", "", f"{self._state.spec.stragglers} has no solution: {error}", at_s)
            self.expire(at_s, f"{self._state.spec.stragglers} has no solution any more")
            return
        recent = self._nodes.recent
        answers = tuple(each for each in answers if each.action.is_global or each.action.node in recent)
        moves = self._cores.moves(self._book.open, at_s)
        proposed = [each for each in (*answers, *moves) if self._may_propose(each.action, at_s)]
        limits = Limits(cooldown_s=self._state.spec.long_window_s)
        decided = arbitrate(proposed, facts, limits)
        for refusal in decided.refusals:
            if running is not None and not differs(running.action.action, refusal.action):
                continue  # it is being done
            text = f"{refusal.action.words}: not now, because {refusal.reason}"
            self._tell(refusal.rule, subject(refusal.action), text, at_s)
        if running is None:
            self._offer(decided.orders, decided.refusals, proposed, at_s)

    def _may_propose(self, action: Action, at_s: float) -> bool:
        is_fresh = self._global_at_s is None or (
            at_s >= self._global_at_s + self._state.spec.straggler_window_s
        )
        is_ours = self._state.spec.foreign is None or self._is_for_programs(action)
        return is_ours and subject(action) not in self._rejected and (is_fresh or not action.is_global)

    def _is_for_programs(self, action: Action) -> bool:
        by_master = self._state.spec.stragglers in MEASURES and isinstance(action, AdjustBatches)
        return is_for_programs(action) and not by_master

    def _offer(
        self,
        orders: tuple[Order, ...],
        refusals: tuple[Refusal, ...],
        proposed: Iterable[Proposed],
        at_s: float,
    ) -> None:
        """Propose the first admitted action, unless the open one is still as good."""
        opened = self._book.open
        if opened is not None:
            action = opened.action.action
            is_for_slow = not (action.is_global or isinstance(action, SetSize))
            if not orders and is_for_slow and self._state.mode is not Mode.AUTO:
                return  # its node is still slow, and a user may do it nevertheless
            if any(self._stands_for(opened, order.action, at_s) for order in orders):
                return
            if not orders:
                why = (each.reason for each in refusals if not differs(action, each.action))
                self.expire(at_s, next(why, "it would no longer help"))
                return
            self._book.close_open(
                ProposalStatus.SUPERSEDED, at_s, f"a better action: {orders[0].action.words}"
            )
        if orders:
            first = orders[0]
            gain = next((each.gain for each in proposed if each.action == first.action), None)
            self._book.propose(first.action, first.reason, at_s, gain=gain)

    def _stands_for(self, opened: Mitigation, action: Action, at_s: float) -> bool:
        """Whether the open action stands for one that is admitted now.

        New sizes follow speeds, whose means change until the short window is full of the new state.
        """
        is_young = at_s < opened.created_at_s + self._state.spec.straggler_window_s
        is_kind = type(action) is type(opened.action.action) and (
            action.is_global or isinstance(action, SetSize)
        )
        return (is_young and is_kind and named(action) == named(opened.action.action)) or not differs(
            opened.action.action, action
        )

    def _tell(self, rule: str, about: str, text: str, at_s: float) -> None:
        """Add a refusal to the story, once while the nodes concerned are slow."""
        if (rule, about) not in self._told:
            self._told[rule, about] = self._concerned(about)
            self._story.add(at_s, text)

    def _concerned(self, about: str) -> frozenset[str]:
        """Return the node of a subject, all that are slow of a global one."""
        slow = self._nodes.slow
        return frozenset({about}) if about in slow else slow

    # decisions

    def accept(self, decision: Decision, at_s: float) -> tuple[Mitigate, ...]:
        """Order a proposed action."""
        assert decision.proposal is not None
        opened = self._book.find(decision.proposal)
        self._book.accept(opened.id, at_s, f"by {decision.by}")
        return self._order(opened.id, decision, opened.why, at_s)

    def reject(self, decision: Decision, at_s: float) -> None:
        """Close a proposed action, and do not propose it again until its node has recovered."""
        action = self._book.find(decision.proposal).action.action
        self._reject(action)
        self._cores.keep(action)
        note = f"{decision.by}{decision.why and ': ' + decision.why}"
        self._book.close_open(ProposalStatus.REJECTED, at_s, note)

    def begin(self, decision: Decision, at_s: float, *, is_redo: bool) -> tuple[Mitigate, ...]:
        """Order the action of a decision; what an undo takes back is not proposed again at once.

        Parameters
        ----------
        is_redo
            Whether it undoes an undo.
        """
        assert decision.action is not None
        action = decision.action.action
        self._book.close_open(ProposalStatus.SUPERSEDED, at_s, f"{decision.by} ordered: {action.words}")
        self._rejected.pop(subject(action), None)
        if decision.undoes and not is_redo:
            self._reject(action)
        self._cores.keep(action)
        why = decision.why or f"{decision.by} ordered it"
        return self._order(self._book.begin(action, why, at_s), decision, why, at_s)

    def inverse(self, decision: Decision) -> Action | None:
        """Return the action that takes back what a decision is about to order; None where none does."""
        choice = decision.action
        if choice is None and decision.verdict is Verdict.ACCEPT:
            choice = self._book.find(decision.proposal).action
        return None if choice is None else self._nodes.inverse(choice.action)

    def _order(self, name: str, decision: Decision, why: str, at_s: float) -> tuple[Mitigate, ...]:
        self._book.order(name, decision.id, at_s)
        self._by = decision.by
        choice = self._book.find(name).action
        if choice.action.is_global:
            self._global_at_s = at_s
        else:
            self._last_at_s[choice.action.node] = at_s
        logger.info("%s: %s by %s: %s (%s)", self._state.name, name, decision.by, choice.words, why)
        return (Mitigate(MitigationChoice(decision.id, choice, decision.by, why)),)

    def _reject(self, action: Action) -> None:
        self._rejected[subject(action)] = self._concerned(subject(action))

    # facts

    def observe(self, event: NodeStarted | NodeLeft | BatchSizesSet | NodeSizesSet | MitigationEnded) -> None:
        """Take an event on nodes, their sizes, or an action."""
        match event:
            case NodeStarted():
                self._nodes.started(event)
            case NodeLeft():
                self._nodes.left(event)
                self._node_left(event)
            case BatchSizesSet():
                self._nodes.sizes_set(event)
            case NodeSizesSet():
                self._nodes.node_sizes_set(event)
                self._cores.sizes_set(event)
            case MitigationEnded():
                self._ended(event)
            case _ as never:
                assert_never(never)

    def plan_applied(self, event: PlanApplied, rollouts: Rollouts) -> None:
        """Note that a plan is in place; one that no decision ordered ends all actions."""
        if event.plan != rollouts.target and rollouts.current is None:
            self.give_way(event.at_s, f"the plan is now {event.plan.short}")
        self._nodes.plan_applied(event.plan)

    def _ended(self, event: MitigationEnded) -> None:
        """Record that an action is in effect, or failed; of an unknown decision it is ignored."""
        mitigation = self._book.of_decision(event.decision)
        if mitigation is None:
            return
        if event.why_not:
            self._size_failed(mitigation.action.action)
            if self._state.spec.foreign is not None:
                self._reject(mitigation.action.action)
        else:
            self._nodes.in_effect(mitigation.action.action)
        if mitigation.action.action.is_global:
            self._global_at_s = event.at_s
        running = self._book.running
        if running is None or running.id != mitigation.id:
            return  # a change of plan ended it before
        status = ProposalStatus.FAILED if event.why_not else ProposalStatus.APPLIED
        self._end(status, event.at_s, event.why_not)

    def _size_failed(self, action: Action) -> None:
        """Note that a node keeps its size; nothing was done to it, so another action need not wait."""
        if isinstance(action, SetSize):
            self._cores.keep(action)
            self._last_at_s.pop(action.node, None)

    def _node_left(self, event: NodeLeft) -> None:
        """Withdraw the open action if it names a node that has left, and keep no undo that does."""
        opened = self._book.open
        if opened is not None and event.node in named(opened.action.action):
            self.expire(event.at_s, f"{event.node} has left")
        self._undo.forget_node(event.node)
        self._last_at_s.pop(event.node, None)

    def expire(self, at_s: float, why: str) -> None:
        """Close the open action because of another event."""
        self._book.close_open(ProposalStatus.EXPIRED, at_s, why)

    def give_way(self, at_s: float, why: str) -> None:
        """End all actions because of a change of plan, or the end of the job."""
        self.expire(at_s, why)
        if self._book.running is not None:
            self._end(ProposalStatus.FAILED, at_s, why)

    def _end(self, status: ProposalStatus, at_s: float, note: str) -> None:
        running = self._book.running
        assert running is not None
        if status is ProposalStatus.FAILED:
            self._undo.fell_through(running.decision)
        self._book.end(status, at_s, note)


def subject(action: Action) -> str:
    """Return what an action is about: its node, or its kind where it is for all workers."""
    return type(action).__name__ if action.is_global else action.node


def differs(one: Action, other: Action) -> bool:
    """Whether two actions differ so much that one does not stand for the other."""
    match one, other:
        case AdjustBatches(), AdjustBatches():
            return _differ(one.samples, other.samples)
        case AdjustRates(), AdjustRates():
            return _differ(one.factors, other.factors)
        case SetSize(), SetSize() if one.memory_mib == other.memory_mib:
            return _differ(((one.node, one.cpu),), ((other.node, other.cpu),))
    return one != other


def _lasts(nodes: frozenset[str], slow: frozenset[str]) -> bool:
    """Whether none of the nodes has recovered; where none was slow, whether none has become so."""
    return nodes <= slow if nodes else not slow


def _differ(one: Iterable[tuple[str, float]], other: Iterable[tuple[str, float]]) -> bool:
    was, now = dict(one), dict(other)
    return was.keys() != now.keys() or any(abs(now[n] - was[n]) > MATERIAL * was[n] for n in was)
