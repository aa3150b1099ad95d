"""The commands of a `JobHandle`: each becomes a `Command`, which a `CommandService` carries out.

The service knows the rights of the person, the idempotency keys, the rules on a second person, and the audit;
the job's master checks what the person saw. Nothing else sends a command to a job.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from dlrover_nb.core.client.link.perform import perform
from dlrover_nb.core.client.own_commands import own_service
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import ActionChoice
from dlrover_nb.core.structs.decisions.commands import Asker, Entry, choose, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.people import local_person
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.commands.facts import CommandFacts
    from dlrover_nb.core.commands.service import CommandService
    from dlrover_nb.core.structs.decisions.actions import Action as AgainstStragglers
    from dlrover_nb.core.structs.decisions.commands import Command, SecondRequest
    from dlrover_nb.core.structs.decisions.decisions import Prediction
    from dlrover_nb.core.structs.job.job import Mode
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


class JobCommands:
    """The commands about one job; `JobHandle` is what front ends hold.

    Parameters
    ----------
    name
        The job's name.
    link
        Link to its master.
    user
        The account that asks.
    namespace
        Of the job; empty on clusters without namespaces.
    simulated
        Whether the job is simulated: its audit is kept in memory.
    """

    def __init__(
        self, name: str, link: MasterLink, *, user: str, namespace: str = "", simulated: bool = False
    ) -> None:
        self.name, self.namespace, self.simulated = name, namespace, simulated
        self._cluster = ""
        self._link = link
        self._asker = Asker(local_person(user), Entry.PYTHON)
        self._commands = own_service(simulated=simulated)

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job."""
        return self._link.snapshot()

    def asked_by(self, asker: Asker, commands: CommandService | None = None, *, cluster: str = "") -> Self:
        """Return the same job for another person, or through another entry.

        Parameters
        ----------
        asker
            Whose commands those of the new handle are.
        commands
            The service that they go through; None: that of this handle.
        cluster
            Key of the job's cluster, where the front end knows several: requests for a second person keep it.
        """
        other = copy.copy(self)
        vars(other).update(
            _asker=asker, _commands=commands or self._commands, _cluster=cluster or self._cluster
        )
        return other

    def through(self, entry: Entry, commands: CommandService | None = None) -> Self:
        """Return the same job for the same account through another entry."""
        return self.asked_by(replace(self._asker, entry=entry), commands)

    def accept(self, proposal: str | None = None, *, why: str = "") -> Decision:
        """Accept a proposal, or an action against stragglers: the one named (``m1``), or the open one.

        Raises
        ------
        NotFoundError
            When none is open and none was named.
        InvalidValueError
            When a proposal and an action are open, and none was named.
        StaleDecisionError
            When it is no longer open.
        """
        now = self._alive()
        return self._decide(now, Verdict.ACCEPT, proposal=proposal or self._open_one(now), why=why)

    def reject(self, proposal: str | None = None, *, why: str = "") -> Decision:
        """Reject a proposal or an action against stragglers, as `accept` finds it."""
        now = self._alive()
        return self._decide(now, Verdict.REJECT, proposal=proposal or self._open_one(now), why=why)

    def override(self, plan: ResourcePlan, *, proposal: str | None = None, why: str = "") -> Decision:
        """Answer a proposal with another plan, which is applied instead."""
        now = self._alive()
        answered = proposal or self._open_proposal(now)
        return self._decide(now, Verdict.OVERRIDE, proposal=answered, plan=plan, why=why)

    def scale(self, plan: ResourcePlan, *, why: str = "", seen: str = "") -> Decision:
        """Change the running job to `plan`, whether or not anything was proposed.

        Parameters
        ----------
        seen
            Version of the plan that the user saw (`JobSnapshot.version`): a later one refuses the command.
            Empty: whichever it is now. The same holds of `set_mode`, `pin` and
            `limit_budget`.
        """
        return self._decide(self._alive(), Verdict.SCALE, plan=plan, why=why, seen=seen)

    def mitigate(self, action: AgainstStragglers, *, why: str = "", seen: str = "") -> Decision:
        """Order an action against stragglers, whether or not it was proposed.

        Parameters
        ----------
        seen
            As of `scale`.

        Raises
        ------
        InvalidValueError
            When the job cannot do it: a node is not there, or its workers do not wait for each other.
        """
        chosen = ActionChoice.of(action)
        return self._decide(self._alive(), Verdict.MITIGATE, action=chosen, why=why, seen=seen)

    def undo(self, decision: str | None = None, *, why: str = "", is_under_way: bool = False) -> Decision:
        """Undo the latest change by any user: of plan, mode, pins, batch sizes, learning rates.

        A change of plan that is still under way is cancelled: the plan before it runs on, or is restored.
        An undo is a change too: undoing it is a redo. A rejection changed nothing and is skipped: name the
        decision where that matters. An undone plan is not proposed again, nor set by auto mode, until its
        prediction has changed materially.

        Parameters
        ----------
        decision
            The latest one shown to the user (``d3``); None: the present latest.
        is_under_way
            Whether the user saw it as a change that is still being applied, and wants to cancel that: one
            that is in place by now is not taken back.

        Raises
        ------
        NotFoundError
            When there is nothing to take back.
        StaleDecisionError
            When `decision` is no longer the latest change (the error names later ones), or no longer under
            way.
        """
        now = self._alive()
        back = now.undo
        if back is None:
            raise NotFoundError(
                f"job {self.name} has nothing to undo: no decision has made a change that can be taken back"
            )
        if is_under_way and decision != now.under_way:
            raise StaleDecisionError(
                f"{decision} was being applied to job {self.name} when you saw it, and no longer is, so "
                "there is nothing to cancel; look at the job as it is now"
            )
        return self._hand_in(now, replace(back, undoes=decision or back.undoes, why=why))

    def set_mode(self, mode: Mode, *, why: str = "", seen: str = "") -> Decision:
        """Set who decides from now on: the user (manual, suggest) or the optimizer (auto)."""
        return self._decide(self._alive(), Verdict.MODE, mode=mode, why=why, seen=seen)

    def pin(self, pins: Pins, *, why: str = "", seen: str = "") -> Decision:
        """Fix these parts of every plan from now on, and no others; empty pins free all.

        Raises
        ------
        InvalidValueError
            When just these are pinned already.
        CapacityError
            When no plan with these pins fits on the machines.
        """
        return self._decide(self._alive(), Verdict.PIN, pins=pins, why=why, seen=seen)

    def limit_budget(self, budget_total: float | None, *, why: str = "", seen: str = "") -> Decision:
        """Set the most that the job may spend in total; None: no limit.

        Raises
        ------
        InvalidValueError
            When it is not more than what was spent, it is the present limit, or a price is unknown.
        StaleDecisionError
            When the job is being stopped already, as its budget is spent.
        """
        return self._decide(self._alive(), Verdict.BUDGET, budget_total=budget_total, why=why, seen=seen)

    def retry_shard(self, shard: int, *, why: str = "") -> None:
        """Retry a shard that ended its workers, after its rows were repaired.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.
        """
        self._choose(ShardChoice(shard, ShardAction.RETRY, "", why))

    def skip_shard(self, shard: int, *, why: str = "") -> None:
        """Skip a shard that ended its workers; `InvalidValueError` when it is not in quarantine."""
        self._choose(ShardChoice(shard, ShardAction.SKIP, "", why))

    def adjust_batches(self, sizes: Mapping[str, int], *, why: str = "") -> None:
        """Set batch sizes of workers by name, from one iteration on.

        Raises
        ------
        InvalidValueError
            When a worker is not there, or a size is below 1.
        """
        self._choose(BatchChoice(tuple(sorted(sizes.items())), "", why))

    def finish(self, *, why: str = "") -> None:
        """Train no more rows: the shards at hand are completed, the model is evaluated, the job succeeds.

        Raises
        ------
        StaleDecisionError
            When the job is ending already.
        InvalidValueError
            When it runs programs of others.
        """
        self._choose(FinishChoice("", why))

    def _open_one(self, snapshot: JobSnapshot) -> str:
        """Return the id of what waits for an answer: a proposal, or an action against stragglers."""
        proposal, mitigation = snapshot.open_proposal, snapshot.open_mitigation
        if mitigation is None:
            return self._open_proposal(snapshot)
        if proposal is None:
            return mitigation.id
        raise InvalidValueError(
            f"job {self.name} has two that wait for an answer: {proposal.id} "
            f"({proposal.candidate.plan.short}) and {mitigation.id} ({mitigation.words}); name one of them"
        )

    def _open_proposal(self, snapshot: JobSnapshot) -> str:
        if snapshot.open_proposal is None:
            last = snapshot.proposals[-1] if snapshot.proposals else None
            detail = f"the last one, {last.id}, is {last.status}" if last else "there was none yet"
            raise NotFoundError(
                f"job {self.name} has no open proposal ({detail}); use scale to set a plan yourself"
            )
        return snapshot.open_proposal.id

    def _decide(  # noqa: PLR0913 - fields of a decision, all by keyword
        self,
        now: JobSnapshot,
        verdict: Verdict,
        *,
        proposal: str | None = None,
        plan: ResourcePlan | None = None,
        mode: Mode | None = None,
        pins: Pins | None = None,
        action: ActionChoice | None = None,
        budget_total: float | None = None,
        why: str = "",
        seen: str = "",
    ) -> Decision:
        made = Decision(
            verdict, "", 0.0, proposal, plan, mode, why,
            pins=pins, seen=seen, action=action, budget_total=budget_total,
        )  # fmt: skip
        return self._hand_in(now, made)

    def _hand_in(self, now: JobSnapshot, decision: Decision) -> Decision:
        made = self.run(decide(decision, self.name), now)
        assert made is not None
        return made

    def _choose(self, choice: UserChoice) -> None:
        self.run(choose(choice, self.name))

    def run(self, command: Command, now: JobSnapshot | None = None) -> Decision | None:
        """Carry out a command about this job through the command service; return the decision made, if any.

        Parameters
        ----------
        now
            A snapshot that was fetched for it; None: one is fetched for the audit.

        Raises
        ------
        NotAllowedError
            When the person of this handle may not.
        SecondPersonError
            When a rule wants a second person.
        StaleDecisionError
            When what the person saw no longer stands, or a command of the same key was asked before.
        """
        facts, by = self.facts(command, now), self._asker.person.name
        return self._commands.run(
            command, self._asker, facts, lambda: perform(self._link, command, by), again=self._again
        )

    def approve(self, request: SecondRequest) -> Decision | None:
        """Carry out a command that waits for a second person, as that person.

        Raises
        ------
        NotAllowedError
            When this person asked for it, or may not.
        StaleDecisionError
            When it is not open any more, or the job has changed since.
        """
        by = f"{self._asker.person.name} for {request.first}"
        return self._commands.approve(
            request.id,
            self._asker,
            self.facts(request.command),
            lambda command: perform(self._link, command, by),
        )

    def facts(self, command: Command, now: JobSnapshot | None = None) -> CommandFacts:
        """Return what the audit says of a command; little where the job's master does not answer."""
        from dlrover_nb.core.commands.facts import facts_of  # noqa: PLC0415 - reading a job needs none of it

        predicted, refusal = None, ""
        with suppress(DlroverError):
            now = now or self._link.snapshot()
            predicted, refusal = self._weighed(command, now)
        facts = facts_of(command, now, namespace=self.namespace, predicted=predicted, refusal=refusal)
        return replace(facts, cluster=self._cluster)

    def _weighed(self, command: Command, snapshot: JobSnapshot) -> tuple[Prediction | None, str]:
        """Return the prediction for a plan of the user's own, and why the master would refuse that plan."""
        plan = command.decision.plan if command.decision is not None else None
        if plan is None or snapshot.phase.is_final:
            return None, ""
        (weighed,) = self._link.weigh((plan,))
        return (weighed.candidate.prediction if weighed.candidate else None), weighed.refusal

    def _again(self, answer: str) -> Decision | None:
        """Return the result of a command that was carried out before, by its answer in the audit."""
        from dlrover_nb.core.commands.service import decision_again  # noqa: PLC0415 - as in `facts`

        return decision_again(self.snapshot().decisions, answer) if answer else None

    def _alive(self) -> JobSnapshot:
        """Return the newest snapshot of a job that still accepts decisions."""
        snapshot = self.snapshot()
        if snapshot.phase.is_final:
            from dlrover_nb.core.client.submit_again import submit_again  # noqa: PLC0415 - it reads YAML

            raise StaleDecisionError(
                f"job {self.name} has {snapshot.phase}: nothing to decide any more; "
                f"{submit_again(snapshot.spec)}"
            )
        return snapshot
