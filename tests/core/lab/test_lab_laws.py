"""Laws of the lab: what holds for any workload, contender and seed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.baselines import static
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.lab import MEASURES, Contender, LabFile, LabWorld, Workload, contender_of, run_lab
from dlrover_nb.core.lab.results import interval
from dlrover_nb.core.lab.slow_servers import SlowServers
from dlrover_nb.core.lab.slow_workers import Episode, SlowWorkers
from dlrover_nb.core.lab.truths import FittedTruth, OverlapTruth, drawn_overlap, relative_of
from dlrover_nb.core.lab.workload import described_jobs
from dlrover_nb.core.straggler.detect import LONG_WINDOW_S
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import FitSummary, TermKnowledge

SMALL = Workload(jobs=12, days=0.2, hours=(0.5, 0.5), deadlines=0.5)
LAB = LabFile(workload=SMALL, seeds=(0, 1), machines=(NodeShape(32.0, 192 * 1024, 8),))
FIXED = Contender("fixed-plan")


def one_run(contender: Contender, lab: LabFile = LAB):
    return run_lab(replace(lab, contenders=(contender,), seeds=lab.seeds[:1])).runs[0]


# conservation


@pytest.mark.parametrize("policy", ["fixed-plan", "elastic-scheduling"])
@given(n_machine=st.integers(7, 12), per_day=st.sampled_from([40, 400]), seed=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_jobs_never_hold_more_than_the_machines_have(policy, n_machine, per_day, seed) -> None:
    workload = replace(SMALL, days=SMALL.jobs / per_day)
    machines = (NodeShape(32.0, 192 * 1024, n_machine),)
    run = one_run(Contender(policy), LabFile(workload=workload, machines=machines, seeds=(seed,)))
    cores = [held for _, held in run.use]
    assert max(cores) <= run.cores
    assert min(cores) >= 0
    assert cores[-1] == 0  # all is given back


def test_what_jobs_held_is_what_the_cluster_gave() -> None:
    run = one_run(Contender("elastic-scheduling"))
    at_s, cores = (np.array(each) for each in zip(*run.use, strict=True))
    assert (cores[:-1] * np.diff(at_s)).sum() == pytest.approx(run.column("core_s").sum(), rel=1e-9)
    assert (run.column("used_core_s") <= run.column("core_s")).all()


@pytest.mark.parametrize("scheduler", ["first come", "shortest", "fair share", "qore", "priority"])
def test_every_job_ends_whatever_the_order_of_the_queue(scheduler) -> None:
    run = one_run(Contender("fixed-plan", scheduler=scheduler))
    assert len(run.jobs) == SMALL.jobs
    assert (run.column("queued_s") >= 0).all()
    assert (run.column("jct_s") > run.column("queued_s")).all()


# the same again


def test_the_same_seed_gives_the_same_result() -> None:
    lab = replace(LAB, contenders=(FIXED, Contender("elastic-scheduling", stragglers="antdt-nd")))
    lab = replace(lab, world=LabWorld(slow_per_day=2.0))
    assert run_lab(lab) == run_lab(lab)
    assert run_lab(lab).runs != run_lab(replace(lab, seeds=(2, 3))).runs


def test_a_policy_that_never_changes_is_the_start_plan() -> None:
    same = one_run(contender_of(lambda state: state.plan))
    none = one_run(contender_of(static))
    fixed = one_run(FIXED)
    assert [job.n_change for job in same.jobs] == [0] * SMALL.jobs
    assert same.jobs == none.jobs == fixed.jobs


def test_without_noise_waits_and_changes_a_job_takes_its_length_alone() -> None:
    workload = Workload(jobs=1, hours=(1.0, 0.1))
    world = LabWorld(noise=0.0, start_s=30.0)
    job = one_run(FIXED, replace(LAB, workload=workload, world=world)).jobs[0]
    assert job.queued_s == 0
    assert job.jct_s == pytest.approx(30.0 + job.alone_s)
    assert job.pause_s == pytest.approx(30.0)


def test_noise_of_one_job_is_the_same_whatever_others_do() -> None:
    """A contender that changes one job must not change the luck of the next."""

    def grows_first(state):
        worker = replace(state.plan.worker, count=state.plan.worker.count + 1)
        return replace(state.plan, worker=worker) if state.plan.worker.count == 1 else None

    wide = replace(LAB, machines=(NodeShape(32.0, 192 * 1024, 100),))
    ours, fixed = one_run(contender_of(grows_first), wide), one_run(FIXED, wide)
    pairs = list(zip(ours.jobs, fixed.jobs, strict=True))
    unchanged = [(a.jct_s, b.jct_s) for a, b in pairs if a.n_change == 0]
    assert any(a.n_change for a, _ in pairs)
    assert unchanged
    assert all(a == pytest.approx(b) for a, b in unchanged)


# truths

plans = st.builds(
    lambda w, p, a, b: ResourcePlan(RolePlan(w, a, 1024), RolePlan(p, b, 1024)),
    st.integers(1, 64), st.integers(1, 16), st.sampled_from([1.0, 2.0, 8.0]), st.sampled_from([1.0, 4.0]),
)  # fmt: skip
FIT = FitSummary(
    at_s=0.0,
    terms=(
        TermKnowledge("gradients", 1e-3, 1e-5, identified=True),
        TermKnowledge("updates", 1e-2, 1e-3, identified=True),
        TermKnowledge("constant", 0.01, 1e-3, identified=True),
    ),
    log_error=0.1, n_plan=5, n_sample=30, dense_bytes=1e6, embedding_dim=64, batch_size=512,
)  # fmt: skip
truths = st.integers(0, 50).map(lambda seed: drawn_overlap(np.random.default_rng(seed)))
fitted = st.integers(0, 5).map(lambda seed: FittedTruth(FIT, np.random.default_rng(seed)))


@given(truth=st.one_of(truths, fitted), plan=plans, batch=st.sampled_from([64, 512]))
def test_parts_of_a_step_sum_to_it_and_nodes_use_at_most_their_cores(truth, plan, batch) -> None:
    speed, split = truth.speed(plan, batch), truth.split(plan, batch)
    assert split.total_s == pytest.approx(plan.worker.count * batch / speed)
    assert min(split.compute_s, split.lookup_s, split.update_s, split.other_s) >= -1e-12
    worker, ps = truth.used_cores(plan, batch)
    assert 0 <= worker <= plan.worker.cpu * (1 + 1e-9)
    assert 0 <= ps <= plan.ps.cpu * (1 + 1e-9)


@given(truth=truths, plan=plans)
def test_more_cores_never_slow_a_job_down(truth, plan) -> None:
    larger = replace(plan, worker=replace(plan.worker, cpu=plan.worker.cpu + 1))
    assert truth.speed(larger, 512) >= truth.speed(plan, 512)


def test_a_truth_of_ones_own_fit_departs_from_it_by_about_its_error() -> None:
    rng = np.random.default_rng(0)
    plan = ResourcePlan(RolePlan(8, 2.0, 1024), RolePlan(2, 2.0, 1024))
    straight_s = 1e-3 * 512 / 2 + 1e-2 * 8 / (2 * 2) + 0.01
    logs = [
        math.log(8 * 512 / straight_s / FittedTruth(FIT, each).speed(plan, 512)) for each in rng.spawn(200)
    ]
    assert np.std(logs) == pytest.approx(FIT.log_error, rel=0.2)


# slow workers


@pytest.mark.parametrize(
    ("sync", "solution", "last"),
    [
        (Sync.BSP, "none", 0.5),  # all wait for the slow one
        (Sync.BSP, "backup-workers", 0.9),  # its samples are left out
        (Sync.BSP, "antdt-nd", 0.95),  # sizes by speeds: 9.5 of 10 workers' work
        (Sync.ASP, "none", 0.95),
        (Sync.ASP, "antdt-nd", 1.0),  # replaced
    ],
)
def test_a_slow_worker_costs_what_its_solution_leaves(sync, solution, last) -> None:
    slow = SlowWorkers(sync, solution, LabWorld(), np.random.default_rng(0))
    slow.resize(10)
    stages = slow.stages(Episode(0.0, 0.5, 7200.0))
    assert stages[0] == (0.0, 0.5 if sync is Sync.BSP else 0.95)
    assert stages[-1][1] == pytest.approx(last, abs=0.01)
    assert all(0 < share <= 1 for _, share in stages)


def test_slow_workers_cost_time_and_their_solution_saves_some() -> None:
    workload = replace(SMALL, jobs=20)
    lab = replace(LAB, workload=workload, world=LabWorld(slow_per_day=20.0), seeds=(0,))
    contenders = (Contender("fixed-plan"), Contender("fixed-plan", stragglers="antdt-nd"))
    none, ours = run_lab(replace(lab, contenders=contenders)).runs
    quiet = one_run(FIXED, replace(lab, world=LabWorld()))
    assert quiet.column("jct_s").sum() < ours.column("jct_s").sum() < none.column("jct_s").sum()


PLAN = ResourcePlan(RolePlan(8, 4, 4096), RolePlan(4, 4, 8192))


def _servers(solution, plan=PLAN, **truth):
    job = described_jobs(replace(SMALL, sync="bsp"), {}, np.random.default_rng(0))[0]
    parts = {"grad_s": 1e-4, "serve_s": 1e-3, "link_s": 1e-4, "constant_s": 0.01, "sharpness": 1.0} | truth
    servers = SlowServers(
        replace(job, truth=OverlapTruth(**parts)), solution, LabWorld(), np.random.default_rng(0)
    )
    servers.resize(plan)
    return servers


@given(factor=st.floats(0.1, 0.9), n_ps=st.integers(1, 6), sharpness=st.floats(1, 8))
def test_a_slow_server_costs_at_most_what_it_is_slower_and_moved_buckets_give_some_back(
    factor, n_ps, sharpness
) -> None:
    plan = replace(PLAN, ps=replace(PLAN.ps, count=n_ps))
    none = _servers("none", plan, sharpness=sharpness).stages(Episode(0.0, factor, 7200.0))
    assert len(none) == 1
    assert factor - 1e-9 <= none[0][1] <= 1
    ours = _servers("antdt-nd", plan, sharpness=sharpness).stages(Episode(0.0, factor, 7200.0))
    assert ours[0] == none[0]
    if len(ours) > 1:
        (_, before), (at_s, after) = ours
        assert n_ps > 1
        assert at_s == LONG_WINDOW_S
        assert before < after <= 1


def test_a_server_of_which_the_step_hardly_waits_is_left_alone() -> None:
    hidden = _servers("antdt-nd", grad_s=0.01, serve_s=1e-6, link_s=0.0, sharpness=8.0)
    assert hidden.stages(Episode(0.0, 0.5, 7200.0)) == ((0.0, pytest.approx(1.0)),)
    waited_for = _servers("antdt-nd")
    assert len(waited_for.stages(Episode(0.0, 0.5, 7200.0))) == 2
    assert len(waited_for.stages(Episode(0.0, 0.5, 60.0))) == 1, (
        "it recovers before it is found slow for long"
    )


def test_slow_servers_cost_time_and_moved_buckets_save_some() -> None:
    workload = replace(SMALL, jobs=20)
    world = LabWorld(slow_ps_per_day=40.0, slow_factor=(0.2, 0.4), slow_s=7200.0)
    lab = replace(LAB, workload=workload, world=world, seeds=(0,))
    contenders = (Contender("fixed-plan"), Contender("fixed-plan", stragglers="antdt-nd"))
    none, ours = run_lab(replace(lab, contenders=contenders)).runs
    quiet = one_run(FIXED, replace(lab, world=LabWorld()))
    assert quiet.column("jct_s").sum() < ours.column("jct_s").sum() < none.column("jct_s").sum()


# results


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8))
def test_an_interval_holds_its_median(values) -> None:
    figure = interval(np.array(values))
    assert figure.low <= figure.median <= figure.high


def test_figures_of_a_contender_are_those_of_its_runs() -> None:
    result = run_lab(replace(LAB, contenders=(FIXED, Contender("elastic-scheduling"))))
    first, second = result.scores
    assert first.ratio.median == 1.0
    assert second.ratio.is_there
    assert set(first.figures) == set(MEASURES)
    assert first.figures["changes"].median == 0
    assert 0 < first.figures["cpu_use"].median <= 1
    assert 0 < first.figures["fairness"].median <= 1
    assert 0 <= first.figures["in_time"].median <= 1
    assert result.score("elastic-scheduling") is second
    assert result.n_job == SMALL.jobs


def test_a_request_that_no_machine_holds_is_refused_before_anything_runs() -> None:
    with pytest.raises(CapacityError):
        one_run(FIXED, replace(LAB, machines=(NodeShape(1.0, 1024, 1),)))


def test_a_policy_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidValueError, match="optimus"):
        one_run(Contender("optimum"))


# warm start


WARM = Contender("elastic-scheduling", warm_start=True)


def _numbers(run):
    return [replace(each, job="") for each in run.jobs]


def test_a_job_without_relatives_begins_on_its_request_also_warm() -> None:
    cold, warm = one_run(Contender("elastic-scheduling")), one_run(WARM)
    assert _numbers(cold) == _numbers(warm)


def test_jobs_of_a_kind_begin_where_earlier_ones_ended() -> None:
    workload = replace(SMALL, jobs=30, days=10.0, families=1, kinship=0.0, request="small", owners=1)
    lab = replace(LAB, workload=workload)
    cold, warm = one_run(Contender("elastic-scheduling"), lab), one_run(WARM, lab)
    assert all(each.first_nodes == (2, 1) for each in cold.jobs)
    assert warm.jobs[0].first_nodes == (2, 1), "it has no others to learn from"
    assert max(each.first_nodes[0] for each in warm.jobs[1:]) > 2
    for name in ("start_workers", "start_ps"):
        assert MEASURES[name].of(warm) >= MEASURES[name].of(cold)
    assert MEASURES["start_workers"].of(warm) > MEASURES["start_workers"].of(cold)
    assert warm.column("n_change").sum() < cold.column("n_change").sum()
    assert warm.column("alone_s").tolist() == cold.column("alone_s").tolist(), "fairness is by the request"


@given(seed=st.integers(0, 1000), kinship=st.floats(0, 1))
def test_a_relative_is_as_near_as_kinship_says(seed, kinship) -> None:
    truth = drawn_overlap(np.random.default_rng(seed))
    near = relative_of(truth, np.random.default_rng(seed + 1), kinship=kinship)
    plan = ResourcePlan(RolePlan(4, 4, 4096), RolePlan(2, 4, 8192))
    ratio = near.speed(plan, 512) / truth.speed(plan, 512)
    assert abs(math.log(ratio)) <= 6 * kinship + 1e-9
    assert (near.half_cores, near.hot) == (truth.half_cores, truth.hot)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Workload(jobs=1, days=1), "1 drawn job in 1 day, by machines"),
        (Workload(jobs=24, days=0.5, families=3), "24 drawn jobs of 3 kinds in 0.5 days, by machines"),
        (Workload(history_days=1), "own jobs of 1 day of the history"),
        (Workload(trace="a/philly.csv", days=1), "up to 100 jobs of 1 day of philly.csv"),
        (Workload(trace="a/philly.csv", days=30), "up to 100 jobs of 30 days of philly.csv"),
    ],
)
def test_a_workload_is_said_in_words(workload, words) -> None:
    assert workload.words.startswith(words)
