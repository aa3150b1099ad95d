"""`CommandService`: the one way in for commands about jobs.

Every entry (magics, Python, the command line, the dashboard, `/api/v1`, the approve page, agents) hands its
commands to a service, which asks in this order: may this person do it; has a command of this key been asked
before; does a rule want a second person. Then it writes to the audit that it was asked, carries it out, and
writes what became of it. What the person saw is checked last, by the job's master, since only it can
compare and act in one step: a proposal by its id, a plan by its version.

The row before the act is the reason for two rows: a process that is killed in between leaves the trace that
something was asked, and a missing answer is not taken for a refusal.

Where a service must audit (`is_required`: a team's server), nothing is done that cannot be written down. A
client on a machine whose disk is full must still be able to stop its job: it says so in its log, and goes on.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from dlrover_nb.core.commands.facts import audit_row, with_answer
from dlrover_nb.core.commands.rights import why_not
from dlrover_nb.core.commands.second_person import NO_RULES, Rules, why_not_second
from dlrover_nb.core.errors import (
    BackendError,
    DlroverError,
    InvalidValueError,
    NotAllowedError,
    NotWrittenError,
    SecondPersonError,
    StaleDecisionError,
)
from dlrover_nb.core.structs.decisions.commands import Action, AuditRow, SecondRequest, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.commands.facts import CommandFacts
    from dlrover_nb.core.structs.decisions.commands import Asker, ChainedRow, Command
    from dlrover_nb.core.structs.decisions.decisions import Decision

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AuditLog(Protocol):
    """Where rows of the audit go; every implementation meets `tests/support/conformance/audit.py`."""

    def append(self, row: AuditRow) -> ChainedRow:
        """Add a row at the end of the chain."""
        ...

    def claim(self, row: AuditRow) -> AuditRow | None:
        """Add the first row of a command; where its key is taken, return the newest row with it instead."""
        ...

    def find(self, key: str) -> AuditRow | None:
        """Return the newest row with the key of a command, if there is one."""
        ...


class Requests(Protocol):
    """Commands that wait for a second person."""

    def add(self, request: SecondRequest) -> SecondRequest:
        """Keep a request; return it with its id."""
        ...

    def take(self, name: str, state: str) -> SecondRequest:
        """Close an open request and return it; `StaleDecisionError` when it is not open any more."""
        ...

    def find(self, name: str) -> SecondRequest:
        """Return an open request; `NotFoundError` or `StaleDecisionError` where there is none."""
        ...


class CommandService:
    """Carries out commands of people whom an entry has identified.

    Parameters
    ----------
    audit
        Opens the audit; it is asked when the first command comes.
    now_s
        The time, for the rows.
    requests
        Where commands wait for a second person; None: `rules` must want none.
    rules
        When a second person is needed.
    is_required
        Whether a command that cannot be written down is refused.
    """

    def __init__(
        self,
        audit: Callable[[], AuditLog],
        now_s: Callable[[], float],
        *,
        requests: Requests | None = None,
        rules: Rules = NO_RULES,
        is_required: bool = False,
    ) -> None:
        self._open, self._now_s = audit, now_s
        self._log: AuditLog | None = None
        self._requests, self._rules, self._is_required = requests, rules, is_required

    def run(
        self,
        command: Command,
        asker: Asker,
        facts: CommandFacts,
        carry_out: Callable[[], T],
        *,
        again: Callable[[str], T] | None = None,
    ) -> T:
        """Carry a command out, or raise why not; either way the audit says so.

        Parameters
        ----------
        command
            What is asked for.
        asker
            Who asks; of the entry, never of the request.
        facts
            What is known of the job.
        carry_out
            Does it.
        again
            Returns the result of a command with the same key that was carried out, by its answer.

        Raises
        ------
        NotAllowedError
            When the person's role does not include it.
        SecondPersonError
            When a rule wants a second person: the request is kept.
        InvalidValueError
            When a rule wants one, and the job's master would refuse it now.
        StaleDecisionError
            When a command of the same key was asked before and is not known to be done, or what the person
            saw no longer stands.
        BackendError
            When it must be audited and cannot be, or the job's master does not answer.
        """
        self._check(command, asker, facts)
        self._check_run(command, asker, facts)
        if rule := self._rules.needed(command.action, facts.cost_per_hour):
            self._check_possible(command, asker, facts)
            raise self._waits(command, asker, facts, rule)
        return self._audited(command, asker, facts, carry_out, again=again)

    def refuse(
        self,
        command: Command,
        asker: Asker,
        facts: CommandFacts,
        error: DlroverError,
        *,
        again: Callable[[str], T],
    ) -> T:
        """Answer a command that cannot be carried out now: as the first of its key was, if there was one.

        The key of one that never could be is not used up: it may come again with that key once it is mended.

        Raises
        ------
        NotAllowedError
            When the person's role does not include it.
        DlroverError
            `error`, which says why it cannot be carried out.
        """
        self._check(command, asker, facts)
        if (before := self._find(command.key)) is None:
            raise error
        return _as_before(before, asker, command, again)

    def request(self, name: str, asker: Asker, facts: CommandFacts) -> SecondRequest:
        """Return an open request that this person may approve.

        Raises
        ------
        NotAllowedError
            When they asked for it themselves, or their role does not include it.
        StaleDecisionError
            When it is not open any more, has waited for too long, or is about an earlier job of that name.
        """
        assert self._requests is not None
        request = self._requests.find(name)
        self._check(request.command, asker, facts)
        if refusal := self.why_not_approve(request, asker.person.name):
            self._refused(request.command, asker, facts, refusal)
            raise NotAllowedError(refusal)
        self._check_run(request.command, asker, facts)
        return request

    def why_not_approve(self, request: SecondRequest, person: str) -> str:
        """Return why a person cannot approve a request, whatever their role; empty: they may ask to."""
        return why_not_second(request, person, self._now_s(), self._rules)

    def propose(self, command: Command, asker: Asker, facts: CommandFacts) -> SecondRequest:
        """Keep a command until a person with the role for it decides on it.

        Nothing is carried out: this is all that an agent can ask for.

        Raises
        ------
        NotAllowedError
            When the person's role does not include to propose.
        InvalidValueError
            When the job's master would refuse it now.
        BackendError
            When nothing is here where it could wait.
        """
        keyless = replace(command, key="")
        refusal = why_not(asker.person, Action.PROPOSE, owner=facts.owner, namespace=facts.namespace)
        if refusal:
            self._refused(replace(keyless, action=Action.PROPOSE), asker, facts, refusal)
            raise NotAllowedError(refusal)
        self._check_possible(replace(keyless, action=Action.PROPOSE), asker, facts)
        if self._requests is None:
            raise BackendError(
                "a proposal has to wait for a person, and it cannot wait here; send it at the dashboard"
            )
        at_s, rule = self._now_s(), self._rules.needed(command.action, facts.cost_per_hour)
        reason = " and ".join(filter(None, (f"it was proposed through the entry {asker.entry}", rule)))
        request = self._requests.add(
            SecondRequest(
                "", as_seen(keyless, facts), asker.person.name, asker.entry, at_s,
                at_s + self._rules.expires_s, reason, namespace=facts.namespace,
                cost_per_hour=facts.cost_per_hour, cluster=facts.cluster,
            )
        )  # fmt: skip
        row = audit_row(keyless, asker, facts, Stage.WAITING, at_s)
        self._note(replace(row, action=Action.PROPOSE, answer=f"{request.id}: {command.words}"))
        return request

    def approve(self, name: str, asker: Asker, facts: CommandFacts, carry_out: Callable[[Command], T]) -> T:
        """Carry out the command of a request as its second person; raises as `request` and `run` do."""
        assert self._requests is not None
        requests, request = self._requests, self.request(name, asker, facts)
        command = replace(request.command, key="")  # of the first person: it is claimed

        def taken() -> T:
            """Close the request once the audit has who approved it, so that it stays open where it cannot."""
            requests.take(name, f"approved by {asker.person.name}")
            return carry_out(command)

        return self._audited(command, asker, facts, taken, first=request.first)

    def withdraw(self, name: str, asker: Asker, facts: CommandFacts, why: str = "") -> None:
        """Close a request without carrying it out: by its first person, or by one who might approve it."""
        assert self._requests is not None
        request = self._requests.find(name)
        if asker.person.name != request.first:
            self._check(request.command, asker, facts)
        self._requests.take(name, f"refused by {asker.person.name}")
        self._refused(request.command, asker, facts, f"{name} was refused{why and ': ' + why}")

    # steps

    def _check(self, command: Command, asker: Asker, facts: CommandFacts) -> None:
        refusal = why_not(asker.person, command.action, owner=facts.owner, namespace=facts.namespace)
        if refusal:
            self._refused(command, asker, facts, refusal)
            raise NotAllowedError(refusal)

    def _check_run(self, command: Command, asker: Asker, facts: CommandFacts) -> None:
        """Refuse a command about an earlier job of that name, where both are known."""
        if command.run and facts.run and command.run != facts.run:
            refusal = f"it was meant for an earlier job named {command.job}, which was started again since"
            self._refused(command, asker, facts, refusal)
            raise StaleDecisionError(refusal)

    def _check_possible(self, command: Command, asker: Asker, facts: CommandFacts) -> None:
        """Refuse to keep what the job's master would refuse; it checks by itself what does not wait."""
        if facts.refusal:
            self._refused(command, asker, facts, facts.refusal)
            raise InvalidValueError(facts.refusal)

    def _refused(self, command: Command, asker: Asker, facts: CommandFacts, why: str) -> None:
        row = audit_row(replace(command, key=""), asker, facts, Stage.REFUSED, self._now_s())
        self._note(replace(row, answer=why))

    def _waits(self, command: Command, asker: Asker, facts: CommandFacts, rule: str) -> DlroverError:
        """Keep a command for a second person; return the error that says so."""
        if self._requests is None:
            return BackendError(f"{rule}, and a request cannot wait here; send it at the dashboard")
        at_s, original = self._now_s(), command
        command = as_seen(command, facts)
        row = audit_row(command, asker, facts, Stage.WAITING, at_s)
        if command.key and (before := self._claim(row)) is not None:
            _as_before(before, asker, original, None)
        asks = SecondRequest(
            "", command, asker.person.name, asker.entry, at_s, at_s + self._rules.expires_s, rule,
            namespace=facts.namespace, cost_per_hour=facts.cost_per_hour, cluster=facts.cluster,
        )  # fmt: skip
        try:
            request = self._requests.add(asks)
        except BackendError as error:
            return NotWrittenError(f"nothing was done, because the request could not be stored: {error}")
        answer = f"{request.id}: {rule}"
        self._note(replace(row, answer=answer))
        return _waiting(command, answer)

    def _audited(
        self,
        command: Command,
        asker: Asker,
        facts: CommandFacts,
        carry_out: Callable[[], T],
        *,
        again: Callable[[str], T] | None = None,
        first: str = "",
    ) -> T:
        keyed = command if command.key else replace(command, key=uuid.uuid4().hex)
        row = replace(audit_row(keyed, asker, facts, Stage.ASKED, self._now_s()), first=first)
        if (before := self._claim(row)) is not None:
            return _as_before(before, asker, command, again)
        try:
            done = carry_out()
        except BaseException as error:
            text = str(error) if isinstance(error, DlroverError) else type(error).__name__
            self._note(with_answer(row, stage_of(error), text, self._now_s()))
            raise
        self._note(with_answer(row, Stage.DONE, answer_of(done), self._now_s()))
        return done

    def _claim(self, row: AuditRow) -> AuditRow | None:
        try:
            return self._audit().claim(row)
        except DlroverError as error:
            if self._is_required:
                raise NotWrittenError(
                    f"nothing was done, because the audit could not be written: {error}"
                ) from error
            logger.warning("%s of job %s is not in the audit: %s", row.action, row.job, error)
            return None

    def _find(self, key: str) -> AuditRow | None:
        try:
            return self._audit().find(key) if key else None
        except DlroverError as error:
            logger.warning("the audit does not say whether a command of this key came before: %s", error)
            return None

    def _note(self, row: AuditRow) -> None:
        """Write a row about something that is over: no error of the audit can undo it."""
        try:
            self._audit().append(row)
        except DlroverError as error:
            logger.warning("%s of job %s (%s) is not in the audit: %s", row.action, row.job, row.stage, error)

    def _audit(self) -> AuditLog:
        if self._log is None:
            self._log = self._open()
        return self._log


def as_seen(command: Command, facts: CommandFacts) -> Command:
    """Return a command that only the state its person saw lets through; what it says of that itself holds."""
    command, decision = replace(command, run=command.run or facts.run), command.decision
    if decision is None or decision.seen or not facts.version:
        return command
    return replace(command, decision=replace(decision, seen=facts.version))


def stage_of(error: BaseException) -> Stage:
    """Return what became of a command that raised: it was refused, or its outcome is unknown."""
    if isinstance(error, NotAllowedError):  # by the cluster too, whose other errors tell nothing for sure
        return Stage.REFUSED
    is_known = isinstance(error, DlroverError) and not isinstance(error, BackendError)
    return Stage.REFUSED if is_known else Stage.FAILED


def answer_of(done: object) -> str:
    """Return what the audit says of a command that was carried out: the id of the decision made, if any."""
    return done if isinstance(done, str) else str(getattr(done, "id", ""))


def _waiting(command: Command, request: str) -> SecondPersonError:
    return SecondPersonError(
        f"{command.words} of job {command.job} waits as {request}; another person with the role for it must "
        "approve it"
    )


def _as_before(before: AuditRow, asker: Asker, command: Command, again: Callable[[str], T] | None) -> T:
    """Return the result of a command that was asked before, or raise what is known of it."""
    if before.person != asker.person.name or before.job != command.job or before.action != command.action:
        raise StaleDecisionError("another command already used this idempotency key; use a new one")
    if before.stage is Stage.DONE and again is not None:
        return again(before.answer)
    if before.stage is Stage.WAITING and before.answer:
        raise _waiting(command, before.answer)
    answer = f": {before.answer}" if before.answer else ""
    raise StaleDecisionError(
        f"{command.words} of job {command.job} was sent before with this key, and is {before.stage}{answer}; "
        "look at the job, and send it with a new key if you still want it"
    )


def decision_again(decisions: tuple[Decision, ...], name: str) -> Decision:
    """Return a decision by the id that a command was answered with; `StaleDecisionError` if forgotten."""
    for decision in decisions:
        if decision.id == name:
            return decision
    raise StaleDecisionError(f"this was sent before with this key, and done as {name}; look at the job")
