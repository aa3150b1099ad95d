"""What workers measure of their mini-batches goes to the history once, with the job that measured it."""

from __future__ import annotations

from dataclasses import replace

from support.plans.slow_world import SlowJob

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.structs.training.batch_cost import BatchCost, ProgramCost
from dlrover_nb.core.structs.views.events import JobSubmitted, Remember

DEVICE = "EPYC, 0.25 cores, 512 MiB"
COST = BatchCost(0.01, 0.0002, 520, DEVICE)


def _kept(orders):
    records = (order.record for order in orders if isinstance(order, Remember))
    return [each for each in records if isinstance(each, ProgramCost)]


def test_each_measurement_is_remembered_once_with_its_job_and_moment():
    job = SlowJob(program="p")
    job.costs = {"worker-0": COST, "worker-1": replace(COST, row_s=0.0004)}
    job.run(5)
    first, second = _kept(job.orders)
    assert (first.program, first.cost) == ("p", replace(COST, job="clicks", at_s=1.0))
    assert second.cost.row_s == 0.0004
    job.costs["worker-0"] = again = replace(COST, fixed_s=0.02)  # it has other cores
    assert [each.cost.fixed_s for each in _kept(job.run(5))] == [again.fixed_s]


def test_what_a_worker_took_from_the_history_is_not_written_back():
    job = SlowJob(program="p")
    job.costs = {"worker-0": replace(COST, job="views", at_s=50.0)}
    job.run(3)
    assert _kept(job.orders) == []


def test_nothing_is_kept_where_no_later_job_could_find_it():
    unknown, old = SlowJob(), SlowJob(program="p")
    unknown.costs, old.costs = {"worker-0": COST}, {"worker-0": replace(COST, device="")}
    for job in (unknown, old):
        job.run(3)
        assert _kept(job.orders) == []


def test_a_job_of_an_earlier_release_is_read():
    first = SlowJob().journal[0]
    text = to_json(first).decode().replace(',"program":""', "")
    assert "program" not in text
    assert from_json(text, JobSubmitted) == first
