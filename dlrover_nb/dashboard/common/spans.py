"""Spans of commands, from the click to the first step of the new plan, for OpenTelemetry.

A command is one span, ``command``; the call of the job's master is its child, ``carry out``; and where a plan
changes, a second child, ``first step``, lasts until a snapshot shows that the new plan runs. Without an SDK
the API's own tracer does nothing, and nothing is watched for it.

The wait for the first step is one thread for all commands, not one each, and none while nothing is awaited.
It gives up after `LIMIT_S`, so that a job that cannot get its nodes keeps no span for days.

Who asked is not in a span: traces leave the house more easily than the audit, which has it.
"""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.errors import BackendError, DlroverError, SecondPersonError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span, Tracer

    from dlrover_nb.core.commands.facts import CommandFacts
    from dlrover_nb.core.commands.second_person import Rules
    from dlrover_nb.core.commands.service import AuditLog, Requests
    from dlrover_nb.core.structs.decisions.commands import Asker, Command
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

T = TypeVar("T")

POLL_S = 0.5
LIMIT_S = 900.0


def first_step(snapshot: JobSnapshot, decision: str) -> str:
    """Return what became of the plan of a decision: ``runs``, ``failed``, ``over``; empty: not known yet."""
    made = next((each for each in snapshot.decisions if each.id == decision), None)
    if made is None:
        return "over" if snapshot.phase.is_final else ""
    proposal = next((each for each in snapshot.proposals if each.id == made.proposal), None)
    if proposal is not None and proposal.status is ProposalStatus.FAILED:
        return "failed"
    plan = made.plan or (proposal.candidate.plan if proposal is not None else None)
    if _runs(snapshot, plan, made.at_s):
        return "runs"
    return "over" if snapshot.phase.is_final else ""


def _runs(snapshot: JobSnapshot, plan: ResourcePlan | None, since_s: float) -> bool:
    has_begun = any(marker.plan == plan and marker.at_s >= since_s for marker in snapshot.markers)
    return has_begun or (snapshot.running == plan and not snapshot.under_way)


@dataclass(frozen=True, slots=True)
class Step:
    """A first step that is awaited: its span, of which decision, and how the job is read."""

    span: Span
    decision: str
    read: Callable[[], JobSnapshot]
    until_s: float  # by time.monotonic


class Steps:
    """Waits for first steps, and ends their spans; a thread runs while there are any."""

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._awaited: list[Step] = []
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, span: Span, decision: str, read: Callable[[], JobSnapshot]) -> None:
        """End a span once the plan of a decision runs."""
        with self._lock:
            self._awaited.append(Step(span, decision, read, time.monotonic() + self._limit_s))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dlrover-spans", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End what is awaited, as not seen."""
        self._is_over.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=30)
        for step in self._awaited:
            _end(step.span, "not seen")

    def _run(self) -> None:
        while not self._is_over.wait(POLL_S):
            for step in list(self._awaited):
                if what := _became(step):
                    _end(step.span, what)
                    self._drop(step)
            with self._lock:
                if not self._awaited:
                    self._thread = None
                    return

    def _drop(self, step: Step) -> None:
        with self._lock:
            self._awaited.remove(step)


def _became(step: Step) -> str:
    try:
        what = first_step(step.read(), step.decision)
    except DlroverError:
        what = ""  # its master is away for a moment
    return what or ("not seen" if time.monotonic() >= step.until_s else "")


def _end(span: Span, what: str) -> None:
    span.set_attribute("dlrover.step", what)
    if what == "failed":
        span.set_status(Status(StatusCode.ERROR))
    span.end()


class TracedCommands(CommandService):
    """A command service whose commands are spans.

    Parameters
    ----------
    audit, now_s, requests, rules
        As of `CommandService`; every command must be audited.
    steps
        Waits for first steps.
    tracer
        Makes the spans; None: that of the process, which does nothing without an SDK.
    """

    def __init__(
        self,
        audit: Callable[[], AuditLog],
        now_s: Callable[[], float],
        *,
        requests: Requests,
        rules: Rules,
        steps: Steps,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(audit, now_s, requests=requests, rules=rules, is_required=True)
        self._steps, self.tracer = steps, tracer or trace.get_tracer("dlrover_nb")
        self._read: Callable[[], JobSnapshot] | None = None
        self._began_ns: int | None = None

    def about(self, read: Callable[[], JobSnapshot]) -> Self:
        """Return the same service for the commands of one request about one job.

        Parameters
        ----------
        read
            Returns the job's state; it is asked on a thread of ours, until the first step is seen.
        """
        other = copy.copy(self)
        other._read, other._began_ns = read, time.time_ns()  # noqa: SLF001 - a copy of this
        return other

    def run(
        self,
        command: Command,
        asker: Asker,
        facts: CommandFacts,
        carry_out: Callable[[], T],
        *,
        again: Callable[[str], T] | None = None,
    ) -> T:
        """Carry a command out within a span; raises as `CommandService.run`."""
        return self._traced(
            command,
            asker,
            facts,
            lambda: super(TracedCommands, self).run(
                command, asker, facts, lambda: self._carried(carry_out), again=again
            ),
        )

    def approve(self, name: str, asker: Asker, facts: CommandFacts, carry_out: Callable[[Command], T]) -> T:
        """Carry out a request's command within a span; raises as `CommandService.approve`."""
        assert self._requests is not None  # as the constructor has it
        command = self._requests.find(name).command
        return self._traced(
            command,
            asker,
            facts,
            lambda: super(TracedCommands, self).approve(
                name, asker, facts, lambda approved: self._carried(lambda: carry_out(approved))
            ),
        )

    def _carried(self, carry_out: Callable[[], T]) -> T:
        with self.tracer.start_as_current_span("carry out", record_exception=False):
            return carry_out()

    def _traced(self, command: Command, asker: Asker, facts: CommandFacts, do: Callable[[], T]) -> T:
        attributes = {
            "dlrover.entry": str(asker.entry),
            "dlrover.action": str(command.action),
            "dlrover.job": command.job,
            "dlrover.namespace": facts.namespace,
        }
        with self.tracer.start_as_current_span(
            "command",
            attributes=attributes,
            start_time=self._began_ns,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                done = do()
            except DlroverError as error:
                span.set_attribute("dlrover.outcome", _outcome(error))
                if isinstance(error, BackendError):
                    span.set_status(Status(StatusCode.ERROR))
                raise
            span.set_attribute("dlrover.outcome", "done")
            if isinstance(done, Decision):
                self._await_step(span, done)
            return done

    def _await_step(self, span: Span, made: Decision) -> None:
        span.set_attribute("dlrover.decision", made.id)
        is_of_plan = made.verdict is Verdict.ACCEPT and not (made.proposal or "").startswith("m")
        changes_plan = made.plan is not None or is_of_plan
        if self._read is None or not (changes_plan and span.is_recording()):
            return
        child = self.tracer.start_span("first step", context=trace.set_span_in_context(span))
        self._steps.watch(child, made.id, self._read)


def _outcome(error: DlroverError) -> str:
    match error:
        case SecondPersonError():
            return "waits"
        case StaleDecisionError():
            return "stale"
        case BackendError():
            return "failed"
        case _:
            return "refused"
