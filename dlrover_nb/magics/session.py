"""The state of a notebook, or of one call of the command line: its cluster, and names from earlier results.

The names are for completion, which runs at each key stroke and must make no request. The proposal that was
shown last is the one that an `accept` without an id accepts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.api.cluster import Cluster
    from dlrover_nb.core.connect.kinds import Target
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.child import Served


@dataclass(frozen=True, slots=True)
class Names:
    """The names in the latest snapshot of a job."""

    proposals: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()  # shards
    decisions: tuple[str, ...] = ()
    mitigations: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()  # of the nodes

    def of(self, what: str) -> tuple[str, ...]:
        """Return the names of a kind, by its word in the help."""
        kinds = {
            "NODE": self.nodes,
            "PS": self.ps,
            "SHARD": self.set_aside,
            "DECISION": self.decisions,
            "ID": (*self.proposals, *self.mitigations),
        }
        return self.proposals if what in {"PROPOSAL", "PLAN"} else kinds.get(what, ())


@dataclass
class Session:
    """The state behind the verbs."""

    cluster: Cluster | None = None
    target: Target | None = None  # of `connect`
    jobs: dict[str, bool] = field(default_factory=dict)  # name -> whether it ran when last listed
    shown: dict[str, str] = field(default_factory=dict)  # job -> id of the proposal or action shown last
    names: dict[str, Names] = field(default_factory=dict)
    dashboard: Served | None = None  # that this notebook started
    runs: dict[str, tuple[str, ...]] = field(default_factory=dict)  # job -> its runs in the history

    def note_jobs(self, jobs: Iterable[JobSummary]) -> None:
        """Remember which jobs there are; only those that still answer can be steered."""
        self.jobs = {j.name: not j.phase.is_final for j in jobs if j.live}

    def note_names(self, snapshot: JobSnapshot) -> None:
        """Remember the names in a snapshot."""
        self.jobs[snapshot.spec.name] = not snapshot.phase.is_final
        self.names[snapshot.spec.name] = Names(
            tuple(p.id for p in snapshot.proposals),
            tuple(n.id for n in snapshot.nodes),
            tuple(str(shard.shard) for shard in snapshot.quarantined),
            tuple(d.id for d in snapshot.decisions),
            tuple(m.id for m in snapshot.mitigations),
            tuple(n.id for n in snapshot.nodes if n.role is Role.PS),
        )

    def note_shown(self, snapshot: JobSnapshot) -> None:
        """Remember what was just shown as open, a proposal or an action; of both, an answer must name one."""
        self.note_names(snapshot)
        waiting = [each.id for each in (snapshot.open_proposal, snapshot.open_mitigation) if each is not None]
        if len(waiting) == 1:
            self.shown[snapshot.spec.name] = waiting[0]
        else:
            self.shown.pop(snapshot.spec.name, None)

    def note_shown_action(self, snapshot: JobSnapshot) -> None:
        """Remember which action against stragglers was just shown as the open one, and no proposal."""
        self.note_names(snapshot)
        if snapshot.open_mitigation is None:
            self.shown.pop(snapshot.spec.name, None)
        else:
            self.shown[snapshot.spec.name] = snapshot.open_mitigation.id

    def note_submitted(self, job: str) -> None:
        """Remember a new job; a proposal of an earlier job of that name no longer counts."""
        self.jobs[job] = True
        self.shown.pop(job, None)

    def note_decided(self, snapshot: JobSnapshot) -> None:
        """Remember the snapshot after a decision: the proposal that was shown last is answered."""
        self.note_names(snapshot)
        self.shown.pop(snapshot.spec.name, None)

    def proposal_for(self, job: str, proposal: str | None) -> str | None:
        """Return the id that was given, else that of the proposal shown last; None: the open one."""
        shown = self.shown.get(job, "")
        return proposal or (shown if shown.startswith("p") else None)

    def answered_for(self, job: str, name: str | None) -> str | None:
        """Return the id that was given, else of the proposal or action shown last; None: the open one."""
        return name or self.shown.get(job)

    def forget(self, job: str) -> None:
        """Forget a job that was deleted."""
        for table in (self.jobs, self.names, self.shown):
            table.pop(job, None)
