"""The commands of a `JobHandle`: a request becomes a `Command`, which a `CommandService` carries out.

The service knows the rights of the person, the idempotency keys, the rules on a second person, and the audit;
the job's master checks what the person saw. Nothing else sends a command to a job.
`perform` is the one place where a command becomes a call.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from dlrover_nb.core.client.own_commands import own_service
from dlrover_nb.core.errors import DlroverError, InvalidValueError, StaleDecisionError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.core.structs.decisions.people import local_person

if TYPE_CHECKING:
    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.commands.facts import CommandFacts
    from dlrover_nb.core.commands.requests import Decides, Request
    from dlrover_nb.core.commands.service import CommandService
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.decisions.commands import Command, SecondRequest
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def perform(link: MasterLink, command: Command, by: str) -> Decision | None:
    """Carry out a command in a person's name; return the decision made, if it is one.

    Raises
    ------
    InvalidValueError
        When it is none about a running job: submit and delete are the cluster's.
    """
    if command.decision is not None:
        return link.decide(replace(command.decision, by=by))
    if command.action is Action.STOP:
        link.stop(by, command.why)
        return None
    choice = command.shard or command.batches or command.finish
    if choice is None:
        raise InvalidValueError(
            f"{command.action} must be a command about a running job; ask the cluster for it"
        )
    link.choose(replace(choice, by=by))
    return None


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

    def ask(self, request: Request, *, version: str = "", key: str = "", run: str = "") -> Decision | None:
        """Ask for something; return the decision made, if it is one.

        A person who may not do something learns that alone, and not that it could not be done now. One who
        sends a request again is told what became of the first one, also where it could not be done any more.

        Parameters
        ----------
        version
            Of the plan that the user saw (`JobSnapshot.version`): a later one refuses the request.
            Empty: whichever it is now.
        key
            Idempotency key, see `Command`.
        run
            Id of the run that it is about, see `Command`.

        Raises
        ------
        NotFoundError, InvalidValueError, StaleDecisionError
            As the request and `run` do; the last one also when the job has ended.
        """
        outline = request.command(self.name, key=key)
        if not request.needs_job:
            return self.run(replace(outline, run=run))
        try:
            now = self._alive()
            command = request.command(self.name, now, version=version, key=key)
        except DlroverError as error:
            return self._commands.refuse(outline, self._asker, self.facts(outline), error, again=self._again)
        return self.run(replace(command, run=run), now)

    def decide(self, request: Decides, *, version: str = "") -> Decision:
        """Ask for a decision, and return it as it was made; raises as `ask` does."""
        made = self.ask(request, version=version)
        assert made is not None
        return made

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
        snapshot = self._link.snapshot()
        if snapshot.phase.is_final:
            from dlrover_nb.core.client.submit_again import submit_again  # noqa: PLC0415 - it reads YAML

            raise StaleDecisionError(
                f"job {self.name} has {snapshot.phase}, so there is nothing left to decide; "
                f"{submit_again(snapshot.spec)}"
            )
        return snapshot
