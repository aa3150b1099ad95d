"""Alerts: what is wrong with a job, since when, and the thresholds of the rules that say so."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from dlrover_nb.core.structs import _check


class AlertKind(StrEnum):
    """What is wrong; an open alert of a job is the only one of its kind."""

    OOM = "out of memory soon"
    STRAGGLER = "straggler"
    STALL = "stall"
    BUDGET = "over budget"
    BUDGET_TOTAL = "budget nearly spent"
    DEADLINE = "deadline at risk"
    HOST = "host is busy"
    PROPOSAL = "proposal waits"
    BLOCKED = "rows wait for a decision"
    SECOND_PERSON = "second person wanted"
    MASTER_LOST = "master lost"
    MASTER_RESTARTED = "master was started again"
    FAILED = "job failed"
    DAMAGE = "files are damaged"


@dataclass(frozen=True, slots=True)
class AlertRules:
    """Thresholds of the rules. An alert begins at one, and ends with some distance from it (`hysteresis`).

    Parameters
    ----------
    oom_within_s
        A node's memory is full within this time, by more than even odds.
    straggler_for_s
        A node that is slow over the monitor's short window alone (transient) has been so for this long; a
        persistent straggler begins an alert at once. It ends when no node is slow.
    stall_iterations, stall_least_s
        No step ends for so many times the usual one, and for at least so long.
    budget_share
        The plan that runs, or the run so far, costs more than this share of the budget per hour.
    budget_total_share
        The job has spent this share of its total budget.
    deadline_least
        The probability to finish by the deadline is below this.
    host_share
        The job loses this part of its time to other work on its hosts.
    proposal_waits_s, second_person_waits_s
        A proposal, or a command that needs a second person, has waited for so long.
    master_lost_s
        A job's master has not answered for so long, while its cluster did.
    hysteresis
        Share of a threshold by which it must be undercut before an alert ends.
    cool_down_s
        After the end of an alert, the next one of this job and kind begins at the earliest so much later.
    """

    oom_within_s: float = 3600.0
    straggler_for_s: float = 120.0
    stall_iterations: float = 50.0
    stall_least_s: float = 120.0
    budget_share: float = 1.0
    budget_total_share: float = 0.8
    deadline_least: float = 0.5
    host_share: float = 0.25
    proposal_waits_s: float = 1800.0
    second_person_waits_s: float = 0.0
    master_lost_s: float = 60.0
    hysteresis: float = 0.1
    cool_down_s: float = 600.0

    def __post_init__(self) -> None:
        for each in fields(self):
            _check.at_least(each.name, getattr(self, each.name), 0)
        _check.fraction("hysteresis", self.hysteresis)
        _check.fraction("deadline_least", self.deadline_least)
        _check.fraction("host_share", self.host_share)


DEFAULT_RULES = AlertRules()


@dataclass(frozen=True, slots=True)
class AboutJob:
    """Which job an alert is about."""

    cluster: str
    job: str
    namespace: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Parameters
    ----------
    about, kind
        Of which job, and what is wrong.
    at_s
        When it began, by the server's clock.
    text
        One line for people: what is wrong, with numbers.
    subject
        Id of the proposal or request that waits; empty: the job.
    id
        Unique in its database; empty: not kept yet.
    ended_at_s
        When it was over; None: it is open.
    """

    about: AboutJob
    kind: AlertKind
    at_s: float
    text: str
    subject: str = ""
    id: str = ""
    ended_at_s: float | None = None

    @property
    def title(self) -> str:
        """Return it as a headline."""
        over = " is over" if self.ended_at_s is not None else ""
        return f"{self.about.job}: {self.kind}{over}"
