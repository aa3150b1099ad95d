"""The audit of auto mode: its decisions are made in the job's master, where no user is asked.

They are commands like those of people, so the audit has a row of each. A master that comes back from its
journal meets its decisions again: the key is made of the run and the decision, so that each has one row.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from dlrover_nb.core import pricing
from dlrover_nb.core.commands.facts import CommandFacts, audit_row
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.structs.decisions.commands import Asker, Entry, Stage, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Proposal
from dlrover_nb.core.structs.decisions.people import Person
from dlrover_nb.core.structs.job.job import JobSpec, run_name

if TYPE_CHECKING:
    from dlrover_nb.core.history.rows import Record
    from dlrover_nb.core.structs.decisions.commands import AuditRow

AUTO = "auto"  # `Decision.by` of auto mode


class AutoAudit:
    """Writes the decisions of auto mode of one job to the audit.

    Parameters
    ----------
    url
        Of the history's database; None for the user's own file.
    namespace
        Where the job runs; empty on clusters without namespaces.
    """

    def __init__(self, url: str | None, namespace: str = "") -> None:
        self._url, self._namespace = url, namespace
        self._store: AuditStore | None = None
        self._spec: JobSpec | None = None
        self._begun_s = 0.0
        self._proposals: dict[str, Proposal] = {}

    def begin(self, spec: JobSpec, started_at_s: float) -> None:
        """Name the job's run."""
        self._spec, self._begun_s = spec, started_at_s

    def note(self, record: Record, at_s: float) -> None:
        """Take a record of the job; a decision of auto mode is written.

        Raises
        ------
        BackendError
            When the database cannot be written.
        """
        if isinstance(record, JobSpec):
            self.begin(record, at_s)
        elif isinstance(record, Proposal):
            self._proposals = {**dict([*self._proposals.items()][-1:]), record.id: record}
        elif isinstance(record, Decision) and record.by == AUTO and self._spec is not None:
            if self._store is None:
                self._store = AuditStore(self._url)
            self._store.claim(self._row(record, self._spec, at_s))

    def _row(self, decision: Decision, spec: JobSpec, at_s: float) -> AuditRow:
        run = run_name(spec.name, self._begun_s)
        proposal = self._proposals.get(decision.proposal or "")
        chosen = None if proposal is None else proposal.candidate
        after = decision.plan or (None if chosen is None else chosen.plan)
        facts = CommandFacts(
            owner=spec.owner,
            namespace=self._namespace,
            run=run,
            before=None if proposal is None else proposal.baseline.plan,
            after=after,
            predicted=chosen.prediction if chosen else None,
            cost_per_hour=pricing.cost_per_hour(after, spec.prices) if after else None,
            mitigation=decision.action.words if decision.action else "",
        )
        key = sha256(f"{run} {decision.id}".encode()).hexdigest()
        row = audit_row(
            decide(decision, spec.name, key=key), Asker(Person(AUTO), Entry.AUTO), facts, Stage.DONE, at_s
        )
        return replace(row, answer=decision.id)

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
