from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.job.step_log import StepLog
from dlrover_nb.core.master.external.job.step_rates import StepRates
from dlrover_nb.core.structs.job.external import Counting, ExternalRole, ExternalSpec, StepsDone
from dlrover_nb.core.structs.plan.resources import Role

RUN = ExternalRole(("run",))
OWN = ExternalSpec(RUN, 100_000, ps=RUN)
JOB = replace(OWN, counting=Counting.JOB)
WORKERS = ("worker-0", "worker-1", "worker-2")

steps = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5000)), min_size=1, max_size=20)


def totals(increments, node="worker-0"):
    told, n_iter, n_sample = [], 0, 0
    for i, (more_iter, more_sample) in enumerate(increments):
        n_iter, n_sample = n_iter + more_iter, n_sample + more_sample
        told.append(StepsDone(node, "p", at_s=float(i), n_iter=n_iter, n_sample=n_sample))
    return told


@given(steps, st.data())
def test_words_lost_and_said_twice_change_no_total(increments, data):
    told = totals(increments)
    heard = [each for each in told[:-1] for _ in range(data.draw(st.integers(0, 3)))]
    meter = StepRates(OWN)
    for each in [*heard, told[-1], told[-1]]:
        meter.record(each, WORKERS, Role.WORKER, 10.0)
    assert meter.n_done == told[-1].n_sample


@given(steps)
def test_all_but_the_first_word_is_reported_once(increments):
    told, meter = totals(increments), StepRates(OWN)
    samples = [s for each in told for s in meter.record(each, WORKERS, Role.WORKER, 10.0)]
    assert sum(s.n_iter for s in samples) == told[-1].n_iter - told[0].n_iter
    assert sum(s.n_sample for s in samples) == told[-1].n_sample - told[0].n_sample
    assert all(s.n_iter * s.iter_s == pytest.approx(s.window_s) for s in samples)


@given(steps)
def test_the_work_of_a_job_is_shared_out_without_a_rest(increments):
    told, meter = totals(increments), StepRates(JOB)
    samples = [s for each in told for s in meter.record(each, WORKERS, Role.WORKER, 10.0)]
    assert sum(s.n_sample for s in samples) == told[-1].n_sample - told[0].n_sample
    assert {s.node for s in samples} in ({*WORKERS}, set())


def test_of_a_jobs_count_only_the_first_worker_is_heard_whoever_that_is():
    meter = StepRates(JOB)
    for each in totals([(1, 10)] * 3, node="worker-1"):
        assert meter.record(each, WORKERS, Role.WORKER, 10.0) == ()
    assert meter.n_done == 0
    later = StepsDone("worker-1", "p", at_s=5.0, n_iter=5, n_sample=50)
    samples = meter.record(later, WORKERS[1:], Role.WORKER, 10.0)
    assert [s.n_sample for s in samples] == [10, 10]
    assert meter.n_done == 20


def test_a_program_that_knows_how_far_the_job_is_says_so():
    meter = StepRates(OWN)
    meter.record(StepsDone("worker-0", "p", n_iter=1, n_sample=10, n_done=5000), WORKERS, Role.WORKER, 1.0)
    assert meter.n_done == 5000


def test_a_meter_goes_on_from_what_was_told_before_it():
    told, before = totals([(2, 20)] * 4), StepRates(OWN)
    for each in told[:2]:
        before.record(each, WORKERS, Role.WORKER, 1.0)
    after = StepRates(OWN, before.n_done, before.told)
    (sample,) = after.record(told[3], WORKERS, Role.WORKER, 2.0)
    assert (sample.n_iter, sample.n_sample, sample.window_s) == (4, 40, 2.0)
    assert after.n_done == 80


def test_several_programs_of_a_node_make_one_report():
    meter = StepRates(OWN)
    for rank in (0, 1):
        meter.record(StepsDone("worker-0", f"p{rank}", rank, 0.0, 1, 10), WORKERS, Role.WORKER, 1.0)
    assert meter.record(StepsDone("worker-0", "p1", 1, 2.0, 5, 50), WORKERS, Role.WORKER, 1.0) == ()
    (sample,) = meter.record(StepsDone("worker-0", "p0", 0, 2.0, 5, 50), WORKERS, Role.WORKER, 1.0)
    assert (sample.n_iter, sample.n_sample) == (4, 80)


def test_lines_about_steps_are_counted_by_the_numbers_that_they_name():
    log = StepLog(r"step (?P<step>\d+) loss (?P<loss>\S+)", 32, "worker-0")
    assert log.read("epoch 1", 0.5) is None
    first = log.read("step 10 loss 0.7", 1.0)
    later = log.read("step 30 loss 0.5", 3.0)
    assert (first.n_iter, first.n_sample) == (1, 32)
    assert (later.n_iter, later.n_sample, later.loss, later.at_s) == (21, 21 * 32, 0.5, 3.0)


def test_a_step_that_goes_back_is_of_another_program():
    log = StepLog(r"step (?P<step>\d+)", 32, "worker-0")
    before = log.read("step 100", 1.0)
    after = log.read("step 90", 9.0)
    assert after.program != before.program
    assert after.n_iter == 1


def test_a_step_that_is_written_twice_is_one():
    log, meter = StepLog(r"(?P<step>\d+)it \[", 32, "worker-0"), StepRates(OWN)
    bar = ["1it [00:01,  1.00s/it]", "3it [00:03,  1.00s/it]", "3it [00:03,  1.01s/it]"]
    told = [log.read(text, at_s) for at_s, text in enumerate([*bar, *bar], 1)]
    assert [None if each is None else (each.program, each.n_iter) for each in told] == [
        *[("log-0", 1), ("log-0", 3), None],
        *[("log-1", 1), ("log-1", 3), None],
    ]
    for each in told:
        assert each is None or meter.record(each, WORKERS, Role.WORKER, 10.0) is not None
    assert meter.n_done == 6 * 32


def test_a_machine_whose_clock_is_set_back_loses_no_steps_and_no_more_time_than_between_two_lines():
    log, meter = StepLog(r"step (?P<step>\d+)", 32, "worker-0"), StepRates(OWN)
    times = [100.0, 101.0, -3499.0, -3498.0, -3497.0, 103.5, 104.5]
    told = [log.read(f"step {n}", at_s) for n, at_s in enumerate(times)]
    samples = [s for each in told for s in meter.record(each, WORKERS, Role.WORKER, 10.0)]
    assert meter.n_done == len(times) * 32
    assert sum(s.n_iter for s in samples) == len(times) - 1
    assert all(s.window_s > 0 for s in samples)
    assert [each.at_s for each in told[:5]] == [100.0, 101.0, 101.0, 102.0, 103.0]


def test_lines_say_how_large_a_step_was_and_how_far_the_job_is():
    log = StepLog(r"samples=(?P<samples>\S+) done=(?P<done>\S+) loss=(?P<loss>\S+)", 32, "worker-0")
    told = log.read("samples=1,024 done=2e4 loss=n/a", 1.0)
    assert (told.n_iter, told.n_sample, told.n_done, told.loss) == (1, 1024, 20_000, None)


NUMBERS = st.sampled_from(
    ["nan", "inf", "-inf", "-5", "9" * 400, "9" * 40, "1e300", "0", "12", "1,024", "-", "7.5"]
)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=20))
def test_whatever_numbers_a_log_has_the_totals_grow_and_fit_into_a_message(lines):
    pattern = r"step (?P<step>\S+) n (?P<samples>\S+) of (?P<done>\S+) loss (?P<loss>\S+)"
    log, meter = StepLog(pattern, 512, "worker-0"), StepRates(OWN)
    for i, numbers in enumerate(lines):
        told = log.read("step {} n {} of {} loss {}".format(*numbers), float(i))
        if told is not None:
            meter.record(told, WORKERS, Role.WORKER, float(i))
            assert 0 <= meter.n_done < 1 << 62
            assert told.loss is None or abs(told.loss) < 2e300


def test_a_loss_that_is_not_a_number_is_a_step_like_others():
    log = StepLog(r"step (?P<step>\d+) loss (?P<loss>\S+)", 32, "worker-0")
    told = [log.read(f"step {n} loss {loss}", float(n)) for n, loss in enumerate(["0.5", "nan", "inf"], 1)]
    assert [(each.n_sample, each.loss) for each in told] == [(32, 0.5), (64, None), (96, None)]


@pytest.mark.parametrize("field", ["n_iter", "n_sample", "n_done"])
def test_totals_that_fit_into_no_message_are_refused_when_they_are_reported(field):
    with pytest.raises(InvalidValueError, match=field):
        StepsDone("worker-0", "p", **{field: 10**30})


@pytest.mark.parametrize("field", ["n_sample", "n_done", "rank"])
def test_totals_below_zero_are_refused_when_they_are_reported(field):
    with pytest.raises(InvalidValueError, match=field):
        StepsDone("worker-0", "p", **{field: -7})


def test_a_program_that_takes_samples_back_is_not_heard_until_it_has_more():
    meter = StepRates(OWN)
    done = [512, 1024, 768, 1536]
    told = [StepsDone("worker-0", "p", at_s=float(n), n_iter=n, n_sample=of) for n, of in enumerate(done, 1)]
    samples = [s for each in told for s in meter.record(each, WORKERS, Role.WORKER, 10.0)]
    assert [s.n_sample for s in samples] == [512, 512]
    assert meter.n_done == 1536
