"""Persistent records of a job: the journal, from which the controller can be replayed, and the history.

Neither may stop training: a full disk or an unreachable database is logged once, and the job continues. The
history is not retried, because each try may block the driver's loop until a lock or a connection times out;
the journal has all that is missing.

A team reads one history, so nothing secret is written to it: neither where a job holds it, nor in texts.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from dlrover_nb.core import pricing
from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.codec import with_texts
from dlrover_nb.core.commands.facts import CommandFacts, audit_row
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.stores.batch_costs import BatchCostStore
from dlrover_nb.core.history.stores.quality_curves import CurveStore
from dlrover_nb.core.structs.decisions.commands import Asker, Entry, Stage, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Proposal
from dlrover_nb.core.structs.decisions.people import Person
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, run_name
from dlrover_nb.core.structs.job.secrets import for_storage, secret_values
from dlrover_nb.core.structs.job.solution_names import MEASURES
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.past_jobs import SeriesRow

if TYPE_CHECKING:
    from dlrover_nb.core.history.rows import Record
    from dlrover_nb.core.structs.decisions.commands import AuditRow
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.views.events import Remember
    from dlrover_nb.core.structs.views.past_jobs import JobCurve, PastJob

logger = logging.getLogger(__name__)

N_SERIES = 200  # past jobs whose series are read
AUTO = "auto"  # `Decision.by` of auto mode


def examples(url: str | None) -> tuple[PastJob, ...]:
    """Return finished jobs for warm start, newest first; none, and a line in the log, without a history."""
    try:
        store = HistoryStore(url)
        try:
            return store.past_jobs()
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("past jobs cannot be used: %s", error)
        return ()


def past_curves(url: str | None, optimizer: str) -> tuple[JobCurve, ...]:
    """Return curves of quality of jobs with an optimizer, newest first, as `examples` returns jobs."""
    try:
        store = CurveStore(url)
        try:
            return store.curves(optimizer=optimizer)
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("curves of quality cannot be used: %s", error)
        return ()


def past_costs(url: str | None, spec: JobSpec, program: str) -> tuple[BatchCost, ...]:
    """Return what earlier jobs of a program measured of mini-batches, as `examples` returns jobs.

    None for a job whose workers need not know that.
    """
    if not program or spec.stragglers not in MEASURES or spec.sync not in {Sync.BSP, Sync.ALLREDUCE}:
        return ()
    try:
        store = BatchCostStore(url)
        try:
            return store.costs(program)
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("earlier costs of mini-batches cannot be used: %s", error)
        return ()


def example_series(url: str | None) -> tuple[tuple[PastJob, tuple[SeriesRow, ...]], ...]:
    """Return finished jobs with their series, as `examples` returns jobs."""
    try:
        store = HistoryStore(url)
        try:
            return store.past_series(limit=N_SERIES)
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("the series of past jobs cannot be used: %s", error)
        return ()


def speed_of_last_run(url: str | None, spec: JobSpec) -> float | None:
    """Return the samples per second of a job's plan, as its last run by that name and owner had them.

    Workers count alike: the plan may have others than that run. None: no such run has succeeded, or none can
    be read.
    """
    try:
        store = HistoryStore.existing(url)
        if store is None:
            return None
        try:
            runs = (r for r in store.jobs() if (r.job, r.owner) == (spec.name, spec.owner))
            last = next((r for r in runs if r.phase is JobPhase.SUCCEEDED), None)
            rows = () if last is None else store.series(spec.name, run=last.run)
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("the last run of %s cannot be used: %s", spec.name, error)
        return None
    n_sample = sum(row.samples_per_s * row.span_s for row in rows)
    worker_s = sum(row.workers * row.span_s for row in rows if row.samples_per_s > 0)
    return spec.plan.worker.count * n_sample / worker_s if n_sample > 0 and worker_s > 0 else None


class HistoryWriter:
    """Writes the history of one job.

    Parameters
    ----------
    job
        The job's name.
    url
        Of the database; None for the user's own file.
    namespace
        Where the job runs, for the audit.
    """

    def __init__(self, job: str, url: str | None, namespace: str = "") -> None:
        self._job, self._url = job, url
        self._store: HistoryStore | None = None
        self._has_failed = False
        self._redactor = Redactor()
        self._started_at_s: float | None = None
        self._audit = _AutoAudit(url, namespace)

    def continue_run(self, spec: JobSpec, started_at_s: float) -> None:
        """Write to the run that was started then, of which an earlier master wrote the beginning."""
        self._redactor = Redactor(secret_values(spec))
        self._started_at_s = started_at_s
        self._audit.begin(for_storage(spec), started_at_s)

    def remember(self, order: Remember) -> None:
        """Write one record; at the end of the job, compact old ones."""
        if self._has_failed:
            return
        try:
            if self._store is None:
                self._store = HistoryStore(self._url)
                if self._started_at_s is not None and not isinstance(order.record, JobSpec):
                    self._store.reopen(self._job, self._started_at_s)
            record = self._storable(order.record)
            self._store.remember(self._job, order.at_s, record)
            self._audit.note(record, order.at_s)
            if isinstance(order.record, PhaseChanged) and order.record.phase.is_final:
                self._store.compact(order.at_s)
        except InvalidValueError as error:
            self._has_failed = self._store is None  # a wrong address stays wrong
            logger.warning("job %s: the history of it is incomplete: %s", self._job, error)
        except DlroverError as error:
            self._has_failed = True
            logger.warning("job %s is not in the history from here on: %s", self._job, error)

    def _storable(self, record: Record) -> Record:
        """Return a record without secrets; the job itself, the first record, tells their values."""
        if isinstance(record, SeriesRow):  # many, and numbers alone
            return record
        if isinstance(record, JobSpec):
            self._redactor = Redactor(secret_values(record))
            return for_storage(record)
        return with_texts(record, self._redactor.within)

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
        self._audit.close()


class _AutoAudit:
    """Writes the decisions of auto mode of one job to the audit: its master makes them, and asks no user.

    They are commands like those of people, so the audit has a row of each. A master that comes back from its
    journal meets its decisions again: the key is made of the run and the decision, so that each has one row.

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
