"""The auditor of a cluster: what jobs hold together, who decides, and who waits.

It looks at what each job aims at, not at what its brain was told of it. Each job has its own auditor too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brain.world import CALL_LIMIT_S, RHYTHM
from simulation.promises import PromiseBrokenError

from dlrover_nb.core.brain.service import LASTS_INTERVALS
from dlrover_nb.core.client.link.calls import Allot, Done
from dlrover_nb.core.structs.plan.bounds import Quota

if TYPE_CHECKING:
    from simulation.brain.world import BrainWorld

    from dlrover_nb.core.client.link.calls import Answer, Call

LASTS_S = LASTS_INTERVALS * RHYTHM.interval_s
STARVED_S = 30.0  # that all who wait find room and none of them starts, though a brain plans
EPS = 1e-6
LEASE = "brain of played"


class BrainAudit:
    """Follows one cluster."""

    def __init__(self, world: BrainWorld) -> None:
        self._world = world
        self._terms: dict[str, int] = {}
        self._told_at_s: dict[str, float] = {}
        self._answered_at_s: dict[str, float] = {}
        self._room_since_s = 0.0
        self.n_allot = self.n_admit = self.n_refused = 0

    # what is said

    def note_sent(self, brain: str, call: Call) -> None:
        """Check that a brain that says what jobs may have holds the lease, and that no other did since it chose."""
        if not isinstance(call, Allot):
            return
        lease, term = self._world.leases.find(LEASE), call.allotment.term
        holders = (
            {self._world.leases.holders[each] for each in range(term, lease.term + 1)} if lease else set()
        )
        if lease is None or lease.left_s <= 0 or holders != {brain}:
            raise PromiseBrokenError("a brain decides without its lease", f"{brain} in term {term}, {lease}")

    def note_answered(self, job: str, call: Call, answer: Answer) -> None:
        """Check what a master took."""
        if not isinstance(call, Allot):
            return
        if not isinstance(answer, Done):
            self.n_refused += 1
            return
        told = call.allotment
        if told.term < self._terms.get(job, 0):
            raise PromiseBrokenError("an old brain has effect", f"{job} obeys term {told.term} of {told.by}")
        self._terms[job] = told.term
        self._told_at_s[job] = self._world.jobs[job].world.elapsed_s
        self.n_allot += 1
        if told.admit is not None:
            self.n_admit += 1
            self._check_room(job, f"{told.by} admits {job} with {told.admit.short}")

    # what must hold

    def after_turn(self) -> None:
        if self._world.errors:
            raise self._world.errors[0]
        answering = filter(self._world.answers, self._world.jobs)
        self._answered_at_s |= dict.fromkeys(answering, self._world.elapsed_s)
        self._check_silence()
        self._check_queue()

    def _cores(self) -> dict[str, float]:
        return {
            name: plan.total_cpu for name, job in self._world.jobs.items() if (plan := job.holds) is not None
        }

    def _check_room(self, admitted: str, what: str) -> None:
        """Check what jobs hold of which a brain can know: by a round, and not silent for too long."""
        now_s = self._world.elapsed_s
        heard = {name for name in self._world.known if now_s < self._answered_at_s.get(name, now_s) + LASTS_S}
        held = {name: cores for name, cores in self._cores().items() if name in {*heard, admitted}}
        most = self._world.capacity.total_cpu
        if sum(held.values()) > most + EPS:
            raise PromiseBrokenError("more is promised than there is", f"{what}: {held} of {most:g} cores")

    def _check_silence(self) -> None:
        """Check that a job plans by itself again when nobody renews what it may have."""
        for name, told_at_s in self._told_at_s.items():
            job = self._world.jobs[name]
            is_late = job.world.elapsed_s > told_at_s + LASTS_S + CALL_LIMIT_S
            if is_late and job.goes_on and job.world.driver._recorded.controller._state.quota != Quota():
                raise PromiseBrokenError("a job waits for a brain that is gone", name)

    def _check_queue(self) -> None:
        world = self._world
        queued = {name: now for name, job in world.jobs.items() if (now := job.world.now).queue is not None}
        waiting = [now for name, now in queued.items() if world.answers(name)]
        free = world.capacity.total_cpu - sum(self._cores().values())
        if (
            not waiting
            or len(waiting) < len(queued)
            or not world.leads
            or any(now.target.total_cpu > free + EPS for now in waiting)
        ):
            self._room_since_s = world.elapsed_s
        if world.elapsed_s > self._room_since_s + STARVED_S:
            raise PromiseBrokenError(
                "jobs starve", f"{free:g} cores are free: {[now.message for now in waiting]}"
            )

    def at_end(self) -> None:
        """Check that nobody waits any more."""
        if left := [name for name, job in self._world.jobs.items() if job.world.now.queue is not None]:
            raise PromiseBrokenError("jobs starve", str(left))
