"""Early stopping by the training loss: windows of reports, the rule, rollbacks, and masters that die."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from support.master.master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import NodeReported, QualityMeasured
from dlrover_nb.core.structs.wire.messages import Report

if TYPE_CHECKING:
    from collections.abc import Callable

N_EPOCH = 6


def falling(n_done: int) -> float:
    return 1 / (n_done / 395 + 1)


class Losing(World):
    """A world whose workers report a loss that depends on the samples so far."""

    def __init__(
        self,
        rule: EarlyStopping | None,
        loss: Callable[[int], float] = falling,
        n_eval: int = 45,
        **changes: object,
    ) -> None:
        self.loss, self.n_told = loss, 0
        first = spec(plan(2, 1), early_stopping=rule, n_epoch=N_EPOCH, **changes)
        super().__init__(first, features(n_eval=n_eval))

    def report(self, name: str) -> None:
        """Report a mean loss of the rows that a worker has trained since its last report."""
        node = self.nodes[name]
        if node.order.role is Role.PS:
            super().report(name)
            return
        n_row = len(self.learnt) - self.n_told if self.learnt else 0
        self.n_told = len(self.learnt)
        loss = self.loss(self.master.train_counts.n_sample_done) if n_row > 0 else None
        sample = NodeSample(
            name, Role.WORKER, self.at_s, 1.0, 1, max(n_row, 0), 0.1, TimeSplit(), 0.5, 100.0, loss=loss
        )
        lease = node.shard.lease if node.shard else None
        node.say(Report(sample, lease, node.n_done, is_leaving=node.is_leaving))


def measured(world: World) -> list[tuple[int, float]]:
    return [(e.n_sample_done, e.value) for e in world.events if isinstance(e, QualityMeasured)]


def test_a_target_of_the_training_loss_ends_training_within_a_pass(words) -> None:
    world = Losing(EarlyStopping(Metric.LOSS, patience=1000, target=0.4))
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert "training loss 0." in world.master.message
    assert world.master.message == words
    counts = world.master.train_counts
    assert counts.finished
    assert counts.skipped > 0
    assert counts.n_sample_done + counts.n_sample_skipped == 395 * N_EPOCH
    *before, last = [value for _, value in measured(world)]
    assert last <= 0.4 < min(before)


def test_a_loss_that_is_level_ends_training_by_its_decline_rate(words) -> None:
    rule = EarlyStopping(Metric.LOSS, patience=4, decline=0.05)
    world = Losing(rule, lambda n: max(1 - n / 500, 0.2))
    world.run_to_end()
    assert world.master.message == words
    assert 400 <= world.master.train_counts.n_sample_done < 395 * N_EPOCH


def test_windows_hold_a_tenth_of_a_pass_and_their_moments_rise() -> None:
    world = Losing(EarlyStopping(Metric.LOSS, patience=1000, target=1e-6))
    world.run_to_end()
    trained_every_row(world)
    told = sum(e.sample.n_sample for e in world.events if isinstance(e, NodeReported) and e.sample.loss)
    assert 10 <= len(measured(world)) <= told / (395 / 10)
    at = [n for n, _ in measured(world)]
    assert at == sorted(set(at))


def test_it_needs_no_held_out_rows_and_holds_no_rounds() -> None:
    world = Losing(EarlyStopping(Metric.LOSS, patience=1000, target=0.4), n_eval=0)
    world.run_to_end()
    assert "has reached the target" in world.master.message
    assert not world.master.rounds


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_losses_that_are_not_finite_count_for_nothing(loss: float) -> None:
    world = Losing(EarlyStopping(Metric.LOSS), lambda _: loss)
    world.run_to_end()
    trained_every_row(world)
    assert not measured(world)


def test_a_rollback_drops_the_windows_of_rows_that_are_trained_again() -> None:
    world = Losing(EarlyStopping(Metric.LOSS, patience=1000, target=1e-6))
    world.run_until(lambda: len(measured(world)) >= 6)
    most = measured(world)[-1][0]
    world.kill(world.living(Role.PS)[0])
    world.run_until(lambda: world.master.train_counts.n_sample_done < most)
    world.run_until(lambda: measured(world)[-1][0] < most)
    points = world.master.record.loss_points
    assert points[-1] == measured(world)[-1]
    assert [n for n, _ in points] == sorted({n for n, _ in points})


def test_a_master_that_restarts_knows_the_windows_so_far() -> None:
    world = Losing(EarlyStopping(Metric.LOSS, patience=1000, target=0.4))
    world.run_until(lambda: len(measured(world)) >= 4)
    before = world.master.record.loss_points
    world.crash()
    assert world.master.record.loss_points == before
    world.run_to_end()
    assert "has reached the target" in world.master.message


def test_without_the_rule_no_window_is_kept() -> None:
    world = Losing(None)
    world.run_to_end()
    assert not measured(world)
    assert world.master.record.loss_points == ()
