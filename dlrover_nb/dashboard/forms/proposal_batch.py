"""The open proposals of all jobs as one batch: what they would change together, and the answer to many.

An open action against a straggler is a line as well: it changes the speed of its job, and no plan.

All numbers are of the summaries that each cluster sends anyway: no snapshot is fetched, so that a batch of
1,000 jobs costs no more than the list of jobs. Rejected: fetching the snapshots of jobs with a proposal; they
are some 100 kB each, of which one line is shown here, and the page of a job has the rest.

Every answer is a command of its own, through the same service: each is checked by itself, and what one finds
stale keeps none of the others back.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.forms.act import act
from dlrover_nb.widgets import units
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.core.structs.views.summary import JobSummary, ProposedAction, ProposedChange
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.forms.act import Ended

N_AT_ONCE = 8  # commands under way: each waits for a master
MOST_PICKED = 2000
BATCH_ACTIONS = (Action.ACCEPT, Action.REJECT)


@dataclass(frozen=True, slots=True)
class Pick:
    """One proposal or action that was chosen, as its person saw it."""

    cluster: str
    job: str
    proposal: str
    version: str
    run: str = ""

    @property
    def text(self) -> str:
        """The pick as the value of a check box."""
        return to_json(self).decode()


def pick_of(text: str) -> Pick:
    """Return the pick of a check box; `InvalidValueError` where it is none."""
    try:
        return from_json(text, Pick)
    except WireError as error:
        raise InvalidValueError("a chosen proposal must be one of the page; load it again") from error


@dataclass(frozen=True, slots=True)
class Line:
    """One open proposal, or one open action against a straggler, of a job."""

    cluster: str
    job: JobSummary
    proposal: str
    may_answer: bool

    @property
    def change(self) -> ProposedChange | None:
        """What a proposal would change; None: it is an action, or the job's master is older."""
        return self.job.outlook.proposed if self.proposal == self.job.open_proposal else None

    @property
    def action(self) -> ProposedAction | None:
        """What an action does; None: it is a proposal."""
        return self.job.outlook.mitigation if self.proposal == self.job.open_mitigation else None

    @property
    def is_known(self) -> bool:
        """Whether the job's master tells what it is; an older one does not."""
        return self.change is not None or self.action is not None

    @property
    def pick(self) -> Pick:
        """What is sent where it is chosen."""
        return Pick(self.cluster, self.job.name, self.proposal, self.job.outlook.version, self.job.run)

    @property
    def gain_samples_per_s(self) -> float:
        """How much faster the job is predicted to be."""
        if self.action is not None:
            return (self.action.gain or 0.0) * self.job.samples_per_s
        return 0.0 if self.change is None else self.change.samples_per_s - self.change.before_samples_per_s

    @property
    def cost_change(self) -> float | None:
        """How much more it costs per hour; None: a price is not known. An action changes no plan."""
        if self.action is not None:
            return 0.0
        change = self.change
        if change is None or change.cost_per_hour is None or change.before_cost_per_hour is None:
            return None
        return change.cost_per_hour - change.before_cost_per_hour


def open_lines(team: Team, person: Person) -> tuple[Line, ...]:
    """Return what waits for an answer in all jobs that a person may view, by cluster and job."""
    lines = []
    for key, cluster in team.clusters.items():
        if not team.may(person, Action.VIEW, key):
            continue
        may = cache(partial(_may_answer, team, person, key))  # many jobs have the same owner
        for job in sorted(cluster.jobs().jobs, key=lambda job: natural(job.name)):
            if not job.waiting or job.phase.is_final:
                continue
            lines += [Line(key, job, name, may(job.owner)) for name in job.waiting]
    return tuple(lines)


def _may_answer(team: Team, person: Person, cluster: str, owner: str) -> bool:
    return all(team.may(person, action, cluster, owner=owner) for action in BATCH_ACTIONS)


def sum_words(lines: Iterable[Line]) -> str:
    """Return what lines would change together: throughput, and cost by currency."""
    lines = tuple(lines)
    sums: dict[str, float] = defaultdict(float)
    n_unknown = 0
    for line in lines:
        if line.cost_change is None:
            n_unknown += 1
        else:
            sums[line.job.outlook.currency] += line.cost_change
    gain = sum(line.gain_samples_per_s for line in lines)
    money = [units.signed_money(value, units.Currency(name), per="h") for name, value in sorted(sums.items())]
    unknown = [f"{n_unknown} of unknown price"] if n_unknown else []
    faster = f"{'+' if gain >= 0 else '-'}{units.rate(abs(gain))}"
    return ", ".join((units.counted(len(lines), "proposal"), faster, *money, *unknown))


def answered(team: Team, person: Person, fields: Mapping[str, Sequence[str]]) -> tuple[Ended, ...]:
    """Answer each chosen proposal by itself; return what became of them, in the order of the page.

    Parameters
    ----------
    fields
        Of the form: ``action``, ``key``, ``reason``, a ``pick`` for each, and maybe its own reason
        (`reason_name`), which goes before the common one.

    Raises
    ------
    InvalidValueError
        When nothing is chosen, too much, or something else than an answer is asked for.
    """
    forms = batch_forms(fields)
    with ThreadPoolExecutor(N_AT_ONCE, thread_name_prefix="dlrover-batch") as pool:
        return tuple(pool.map(lambda form: act(team, person, form), forms))


def batch_forms(fields: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], ...]:
    """Return a form of one command for each chosen proposal; raises as `answered` does."""
    action, picked = _last(fields, "action"), fields.get("pick", ())
    if action not in BATCH_ACTIONS:
        raise InvalidValueError(
            f"many proposals can be {', '.join(BATCH_ACTIONS)}ed together; load the page again"
        )
    if not 0 < len(picked) <= MOST_PICKED:
        raise InvalidValueError(
            f"choose 1 to {MOST_PICKED:,} proposals, got {len(picked):,}; check their boxes"
        )
    key, common = _last(fields, "key"), _last(fields, "reason")
    return tuple(
        {
            "cluster": pick.cluster,
            "job": pick.job,
            "proposal": pick.proposal,
            "version": pick.version,
            "run": pick.run,
            "action": action,
            "key": key,
            "reason": _last(fields, reason_name(pick)).strip() or common,
        }
        for pick in map(pick_of, dict.fromkeys(picked))
    )


def _last(fields: Mapping[str, Sequence[str]], name: str) -> str:
    return fields[name][-1] if fields.get(name) else ""


def reason_name(pick: Pick) -> str:
    """Return the name of the field for the reason of one line."""
    return f"reason {pick.cluster}/{pick.job}/{pick.proposal}"
