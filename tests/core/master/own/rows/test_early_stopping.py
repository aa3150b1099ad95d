"""Evaluations between passes, and the end of training that they bring, under all that can go wrong."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.master.master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.rows.evaluation import early_stop_reason
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import FinishChoice
from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound

if TYPE_CHECKING:
    from dlrover_nb.core.models.score_sums import ScoreSums

RULE = EarlyStopping()


def rounds(*values: float, metric: Metric = Metric.AUC) -> tuple[EvaluationRound, ...]:
    auc = metric is Metric.AUC
    return tuple(
        EvaluationRound(n, float(n), Evaluation(value if auc else 0.5, 1.0 if auc else value, 10))
        for n, value in enumerate(values, 1)
    )


# the rule


@for_each(
    ("values", "rule", "stops"),
    [
        ((), RULE, False),
        ((0.7,), RULE, False),
        ((0.7, 0.8), RULE, False),
        ((0.7, 0.7), RULE, True),
        ((0.7, 0.8, 0.79), RULE, True),
        ((0.7, 0.8, 0.79), EarlyStopping(patience=2), False),
        ((0.7, 0.8, 0.79, 0.8), EarlyStopping(patience=2), True),
        ((0.7, 0.8, 0.79, 0.81), EarlyStopping(patience=2), False),
        ((0.7, 0.705), EarlyStopping(min_gain=0.01), True),
        ((0.7, 0.705, 0.712), EarlyStopping(patience=2, min_gain=0.01), False),
    ],
)
def test_training_stops_after_so_many_rounds_without_gain(
    values: tuple[float, ...], rule: EarlyStopping, stops: object
) -> None:
    assert bool(early_stop_reason(rounds(*values), rule)) is stops


def test_less_log_loss_is_a_gain(words) -> None:
    rule = EarlyStopping(Metric.LOG_LOSS)
    assert not early_stop_reason(rounds(0.5, 0.4, metric=Metric.LOG_LOSS), rule)
    told = early_stop_reason(rounds(0.5, 0.4, 0.45, metric=Metric.LOG_LOSS), rule)
    assert told == words


def test_the_reason_names_the_gain_that_was_asked_for(words) -> None:
    told = early_stop_reason(rounds(0.7, 0.705), EarlyStopping(min_gain=0.01))
    assert told == words


@given(st.lists(st.floats(0, 1), max_size=12), st.integers(1, 4))
def test_ever_better_rounds_never_stop_and_the_same_ones_stop_at_once(
    values: list[float], patience: int
) -> None:
    rule = EarlyStopping(patience=patience)
    assert not early_stop_reason(rounds(*sorted(set(values))), rule)
    assert not early_stop_reason(rounds(*values[:patience]), rule)
    assert early_stop_reason(rounds(*[0.5] * (patience + 1)), rule)


# the master


class Judged(World):
    """A world whose evaluations give these qualities in turn, the last one for ever."""

    def __init__(self, *qualities: float, n_worker: int = 2, n_epoch: int = 6, **changes: object) -> None:
        self.qualities, self.n_judged = qualities, 0
        first = plan(n_worker, 1)
        super().__init__(spec(first, early_stopping=RULE, n_epoch=n_epoch, **changes), features())

    def _evaluate(self, scores: ScoreSums) -> Evaluation:
        self.check_scores(scores)
        self.n_judged += 1
        auc = self.qualities[min(self.n_judged, len(self.qualities)) - 1]
        if auc < 0:
            raise InvalidValueError("AUC needs rows of both classes")
        return Evaluation(auc, 0.1, scores.n_row)


def passes(world: World) -> list[int]:
    return [each.n_pass for each in world.master.rounds]


@pytest.mark.parametrize("n_worker", [1, 3])
def test_a_job_that_no_longer_gains_ends_early_and_says_why(n_worker: int) -> None:
    world = Judged(0.7, 0.8, 0.8, n_worker=n_worker)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert passes(world) == [1, 2, 3]
    assert [each.evaluation.n_sample for each in world.master.rounds] == [45] * 3
    told = "stopped early after pass 3: no gain in AUC since pass 2 (0.8000); AUC 0.8000"
    assert world.master.message.startswith(told)
    counts = world.master.train_counts
    assert counts.finished
    assert counts.skipped > 0
    assert counts.n_sample_done + counts.n_sample_skipped == 395 * 6
    assert 395 * 3 <= counts.n_sample_done < 395 * 5  # training went on while the round was held
    assert world.n_judged == 4  # the final evaluation comes as ever


def test_a_job_that_gains_trains_every_row_and_is_evaluated_between_passes() -> None:
    world = Judged(0.6, 0.7, 0.8, n_epoch=3)
    world.run_to_end()
    trained_every_row(world)
    assert passes(world) == [1, 2]
    assert world.master.message.startswith("trained; AUC 0.8000")
    assert world.master.evaluation_counts.done == 2


def test_without_early_stopping_nothing_is_evaluated_before_the_end() -> None:
    world = World(spec(plan(2, 1), n_epoch=3), features())
    world.run_to_end()
    assert not world.master.rounds


def test_rows_of_one_class_end_nothing() -> None:
    world = Judged(-1.0, n_epoch=3)
    world.run_to_end()
    trained_every_row(world)
    assert not world.master.rounds


def test_rounds_that_a_rollback_undid_are_held_again() -> None:
    world = Judged(0.4, 0.5, 0.6, 0.7, 0.8, 0.9, n_epoch=4)
    world.run_until(lambda: passes(world) == [1, 2])
    world.kill(world.living(Role.PS)[0])
    world.run_until(lambda: not world.master.rounds)  # no checkpoint: back to the beginning
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert passes(world) == [1, 2, 3]


def killed(seed: int, n_worker: int) -> None:
    """Kill nodes and masters; each row counts once, each pass is judged once, and the end says why."""
    rng = random.Random(seed)
    world = Judged(0.5, 0.6, 0.7, 0.7, n_worker=n_worker, checkpoint_every_s=2.0)
    for _ in range(4):
        for _ in range(rng.randrange(1, 40)):
            world.round()
        if world.master.phase.is_final:
            break
        what = rng.choice(["worker", "ps", "master"])
        if what == "master":
            world.crash()
        elif living := world.living(Role(what)):
            world.kill(rng.choice(living))
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    assert world.master.message.startswith(("stopped early after pass", "trained; AUC"))
    counts = world.master.train_counts
    assert counts.finished
    assert counts.n_sample_done + counts.n_sample_skipped == 395 * 6
    assert passes(world) == sorted(set(passes(world)))
    assert world.master.evaluation is not None
    assert world.master.evaluation.n_sample == 45


@pytest.mark.more
@pytest.mark.parametrize("seed", range(6))
def test_some_kills_of_nodes_and_of_the_master_change_no_promise(seed: int) -> None:
    killed(seed, 1 + seed % 3)


@pytest.mark.release
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 30), n_worker=st.integers(1, 3))
def test_kills_of_any_node_and_of_the_master_change_no_promise(seed: int, n_worker: int) -> None:
    killed(seed, n_worker)


# the user's early end


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(0, 40), st.sampled_from([None, Role.PS, Role.WORKER]))
def test_a_job_that_is_finished_by_its_user_succeeds_with_what_it_has_trained(
    n_round: int, n_after: int, killed: Role | None
) -> None:
    world = World(spec(plan(2), n_epoch=1000, checkpoint_every_s=1.0), features())
    for _ in range(n_round):
        world.round()
    world.do(world.master.choose(FinishChoice("ada", "good enough"), world.at_s))
    for _ in range(n_after):
        world.round()
    if killed and world.master.stage is not Stage.ENDED and world.living(killed):
        world.kill(world.living(killed)[0])
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.master.message.startswith("finished by ada: good enough; AUC")
    counts = world.master.train_counts
    assert counts.finished
    assert counts.skipped > 0
    assert counts.n_sample_done == len(world.learnt)
    assert set(world.learnt.values()) <= {1}


def test_a_job_is_finished_once() -> None:
    world = World(spec(n_epoch=1000), features())
    world.run_until(lambda: world.master.train_counts.done > 0)
    world.do(world.master.stop("ada", "", world.at_s))
    with pytest.raises(StaleDecisionError, match="is already ending"):
        world.master.choose(FinishChoice("bob"), world.at_s)
