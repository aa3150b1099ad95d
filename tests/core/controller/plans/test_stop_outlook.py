"""A job that may stop early is planned by its predicted end; one without such a rule as ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.measured.measurement import QualityLog
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.controller.state_bytes import pack, restore
from dlrover_nb.core.planner.advising.explain import binding
from dlrover_nb.core.planner.bid import bid
from dlrover_nb.core.planner.finish_chance import Due, chances, sure_share
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.views.events import QualityMeasured

N_EPOCH, N_TRAIN = 20, 2_500_000
LOSSES = (0.522, 0.4976, 0.4879, 0.482, 0.4777, 0.4744, 0.4718)
RULE = EarlyStopping(Metric.LOG_LOSS, patience=20, target=0.4709)
SETTINGS = ControllerSettings(refit_s=5.0)


@pytest.fixture
def trained(make_job):
    """Make a job after evaluations of its first passes; its true end is pass 8."""

    def make(rule=RULE, evaluations=LOSSES, *, told=True, **fields):
        job = make_job(
            n_epoch=N_EPOCH,
            early_stopping=rule,
            n_sample_total=N_EPOCH * N_TRAIN,
            settings=SETTINGS,
            **fields,
        )
        for i, value in enumerate(evaluations, 1):
            while job.n_done < i * N_TRAIN:
                job.train(1)
            if told:
                job.tell(QualityMeasured(job.at_s, i * N_TRAIN, value))
        job.train(30)
        return job

    return make


def situation(job):
    return job.controller._analyst.published.situation


def test_the_planner_counts_on_the_predicted_end(trained, words) -> None:
    job = trained()
    stop, s = job.view.stop, situation(job)
    assert stop.is_early
    assert stop.low <= 8 * N_TRAIN <= stop.high < stop.n_total
    assert s.n_sample_left == stop.at - stop.n_done
    assert s.n_sample_left < s.stop.n_total - s.stop.n_done
    assert bid(s, job.controller._analyst.published.model).offer().n_sample_left == s.n_sample_left
    assert stop.words == words


@pytest.mark.more
def test_a_job_without_a_rule_is_planned_as_ever(trained) -> None:
    job, plain = trained(rule=None), trained(rule=None, told=False)
    assert job.view.stop is None
    assert situation(job).stop is None
    assert situation(job).due is None
    assert situation(job) == situation(plain)
    assert job.view == plain.view


@pytest.mark.more
def test_what_is_not_predictable_counts_all_passes_and_says_why(trained, words) -> None:
    for evaluations in (LOSSES[:2], (0.4, 0.5, 0.6, 0.7), (0.5, float("nan"), 0.4, 0.3)):
        job = trained(evaluations=evaluations)
        s = situation(job)
        assert s.stop.why_not
        assert s.n_sample_left == s.stop.n_total - s.stop.n_done
        assert job.view.stop.words == words


@pytest.mark.release
def test_a_deadline_that_all_passes_would_miss_is_met_by_the_predicted_end(trained) -> None:
    job = trained()
    s, speed = situation(job), job.speed(job.plan)
    needs_s = s.n_sample_left / speed
    late, no_rule = (trained(rule=rule, deadline_s=job.at_s + needs_s) for rule in (RULE, None))
    assert late.view.deadline.in_time > no_rule.view.deadline.in_time
    assert late.view.deadline.finish_s < no_rule.view.deadline.finish_s
    analysis = late.controller._analyst.published
    assert any("will stop after about" in each for each in binding(analysis, analysis.current, Quota()))


def test_a_rollback_undoes_evaluations_of_rows_that_are_trained_again(words) -> None:
    spec = JobSpec("j", n_epoch=N_EPOCH, early_stopping=RULE)
    log = QualityLog(spec, N_EPOCH * N_TRAIN)
    for i, value in enumerate(LOSSES, 1):
        log.add(QualityMeasured(float(i), i * N_TRAIN, value))
    log.undo_from(3 * N_TRAIN + 1)
    assert log.outlook(3 * N_TRAIN).why_not == words
    log.add(QualityMeasured(9.0, 4 * N_TRAIN, LOSSES[3]))
    assert not log.outlook(4 * N_TRAIN).why_not
    assert log.n_seen == len(LOSSES) + 1


def test_a_snapshot_keeps_the_evaluations(trained) -> None:
    job = trained()
    submitted, state = pack(job.controller)
    again = restore(Controller(submitted, SETTINGS), state)
    assert again.view().stop == job.view.stop
    assert again.view() == job.view


@given(
    st.floats(100, 1e6),
    st.floats(0.01, 1),
    st.integers(1, 10**8),
    st.floats(0.1, 10),
    st.floats(0, 3),
    st.floats(0, 0.9),
)
def test_a_job_that_may_stop_early_is_never_less_probable_in_time(speed, doubt, n, part, more, less) -> None:
    p = Prediction(speed, speed * (1 - doubt / 2), speed * (1 + doubt / 2), False)
    left_s = n / speed * part
    all_left = int(n * (1 + more)) + 1
    early = Due(n, left_s, int(n * more), int(n * less), all_left)
    assert float(chances(p, 0.0, early)) >= float(chances(p, 0.0, Due(all_left, left_s)))
    assert sure_share(p, 0.9, early) <= sure_share(p, 0.9) * (1 + 1e-9)
    assert sure_share(p, 0.9, early) >= sure_share(p, 0.9) * n / all_left * (1 - 1e-9)
    assert float(chances(p, 0.0, Due(n, left_s))) == float(chances(p, 0.0, Due(n, left_s, 0, 0, n)))
