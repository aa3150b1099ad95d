"""The auditor of a job: what must hold after each of its turns, whoever trains its rows.

It reads what users read: snapshots, answers to decisions, the story. None of it is computed as the product does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.driver.damaged_world import WAY_OUT

from dlrover_nb.core.errors import BackendError, DlroverError
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import ShardAction, ShardChoice
from simulation.promises import PromiseBrokenError, RefusedError
from simulation.rules_audit import RulesAudit

if TYPE_CHECKING:
    from support.driver.damaged_world import Case

    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.training.shards import QuarantinedShard
    from simulation.events import JobWorld

LEAST_CRASHES = 3  # of workers, before rows may be suspected
STUCK_S = 700.0  # without any change: beyond all limits of time of the product
ANSWERS_AFTER_S = 4.0  # a person whom the job waits for
OF_PLANS = (Verdict.SCALE, Verdict.OVERRIDE, Verdict.ACCEPT)


class JobAudit:
    """Follows one job.

    Parameters
    ----------
    world
        The job among its surroundings.
    poison
        Rows that end their workers.
    """

    def __init__(self, world: JobWorld, poison: frozenset[int] = frozenset()) -> None:
        self._world, self._poison = world, poison
        self.decisions: dict[str, Decision] = {}
        self.damages: list[Case] = []
        self.stopped_by = ""
        self.disk_was_full = self.may_forget = self.has_run = False
        self._mark: object = None
        self._changed_at_s = self._blocked_since_s = 0.0
        self._rules = RulesAudit(world)

    # what the surroundings tell

    def note_full_disk(self) -> None:
        self.disk_was_full = True

    def note_damage(self, cases: tuple[Case, ...]) -> None:
        self.damages += cases
        self.may_forget |= any("journal" in name for case in cases for name, _ in case.damages)

    # what clients do

    def decide(self, decision: Decision) -> None:
        before, seen = self._by(decision.by), self._world.now
        accepted = next(
            (each.candidate.plan for each in seen.proposals if each.id == decision.proposal), None
        )
        try:
            answer = self._world.driver.decide(decision)
        except DlroverError:
            if self._by(decision.by) != before:
                raise PromiseBrokenError("a refused decision was taken", decision.words) from None
            return
        self.decisions[answer.id] = answer
        self._rules.check_taken(answer, answer.plan or accepted, seen)

    def _by(self, client: str) -> list[Decision]:
        return [each for each in self._world.now.decisions if each.by == client]

    def stop(self, client: str) -> None:
        if not self._world.now.phase.is_final:
            self._world.driver.stop(client)
            self.stopped_by = client

    def restart(self) -> None:
        """Let another master go on; it may refuse only where files were damaged or could not be written."""
        try:
            self._world.restart()
        except BackendError as error:
            if not (self.disk_was_full and "make room" in str(error)):
                raise PromiseBrokenError("a master could not go on", str(error)) from error
            self._world.pass_alone(self._world.full_until_s - self._world.elapsed_s)
            self.restart()
        except DlroverError as error:
            if not (self.damages or self.disk_was_full):
                raise PromiseBrokenError("a master could not go on", str(error)) from error
            if not WAY_OUT.search(str(error)):
                raise PromiseBrokenError("a refusal names no way out", str(error)) from error
            raise RefusedError(str(error)) from error

    # what must hold

    def after_turn(self) -> None:
        """Check what holds at every moment."""
        self.has_run |= self._world.now.running is not None
        self._check_rows()
        self._check_decisions()
        self._check_plan()
        self._check_progress()
        self._rules.after_turn()
        self._attend()

    def _check_rows(self) -> None:
        raise NotImplementedError

    def _check_decisions(self) -> None:
        now = self._world.now
        if self.may_forget or now.damage:
            return
        known = {each.id: each for each in now.decisions}
        lost = [each.words for name, each in self.decisions.items() if known.get(name) != each]
        if lost and not now.phase.is_final:
            raise PromiseBrokenError("an acknowledged decision is lost", ", ".join(lost))

    def _check_plan(self) -> None:
        """Check that the last plan that was ordered is the target, or that the story says why not."""
        now = self._world.now
        plans = [each for each in now.decisions if each.verdict in OF_PLANS]
        if not plans or plans[-1].plan is None or now.under_way or now.phase is not JobPhase.TRAINING:
            return
        last = plans[-1]
        is_target = all(
            (now.target.role(role).count, now.target.role(role).cpu)
            == (last.plan.role(role).count, last.plan.role(role).cpu)
            for role in Role
        )
        ends = (f"{last.id} is failed", f"{last.proposal} is failed", "could not be applied")
        if not is_target and not any(end in line for line in now.story for end in ends):
            raise PromiseBrokenError(
                "an ordered plan is forgotten", f"{last.words}, and {now.target.short} is the target"
            )

    def _check_progress(self) -> None:
        world, now = self._world, self._world.now
        mark = (now.phase, now.message, now.train, now.evaluate, tuple(each.id for each in now.nodes))
        if mark != self._mark:
            self._mark, self._changed_at_s = mark, world.elapsed_s
        if world.elapsed_s > self._changed_at_s + STUCK_S:
            raise PromiseBrokenError("it waits for ever", f"{now.phase}: {now.message}, {now.train}")

    def _attend(self) -> None:
        """Answer as a person does whom the job waits for."""
        world, now = self._world, self._world.now
        if not now.quarantined:
            self._blocked_since_s = world.elapsed_s
            return
        for each in now.quarantined:
            self._check_quarantine(each)
        if world.elapsed_s > self._blocked_since_s + ANSWERS_AFTER_S:
            self._blocked_since_s = world.elapsed_s
            shard = now.quarantined[0]
            action = ShardAction.SKIP if self._holds_poison(shard) else ShardAction.RETRY
            world.skipped |= (
                {(shard.epoch, row) for row in range(shard.start, shard.stop)} if action == "skip" else set()
            )
            world.driver.choose(ShardChoice(shard.shard, action, "ada"))

    def _holds_poison(self, shard: QuarantinedShard) -> bool:
        return not self._poison.isdisjoint(range(shard.start, shard.stop))

    def _check_quarantine(self, shard: QuarantinedShard) -> None:
        if not self._holds_poison(shard) and self._world.n_crash < LEAST_CRASHES:
            words = f"{shard}, after {self._world.n_crash} crashes of workers"
            raise PromiseBrokenError("healthy rows are in quarantine", words)

    # the end

    def may_be_refused(self, message: str) -> bool:
        """Whether a rule of the cluster may end the job: one that has run goes on with the nodes that it has."""
        return "the cluster refuses" in message and not self.has_run

    def at_end(self) -> None:
        """Check what holds of a job that has ended."""
        raise NotImplementedError
