"""The parameters that papers leave to operators: what is refused, and that each reaches what it decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each
from support.plans.offers_made import offer

from dlrover_nb.core.bottleneck import Bottleneck, JobUse, NodeUse, Remedy, diagnose, is_stable, with_remedy
from dlrover_nb.core.brain.by_deadline import load_of
from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.brain.queue_order import QueueState, first_of
from dlrover_nb.core.controller.measured.use_log import UseLog
from dlrover_nb.core.deadline.host_choice import Host, NewNode, wishes
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import cluster_keys, cluster_tuning, dump_job, known_keys, parse_job
from dlrover_nb.core.planner.policies.nearchus import small_start
from dlrover_nb.core.planner.policies.stages import warm_start
from dlrover_nb.core.straggler import MonitorSettings
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.cluster.cluster_load import Amount
from dlrover_nb.core.structs.decisions.actions import BackupWorkers, KillRestart
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.job.tuning import (
    AntDT,
    ClusterLoads,
    ClusterTuning,
    JobTuning,
    Nearchus,
    RemainingTime,
    SimilarJobs,
    StartMethod,
)
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler
from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob

MIB = 1024
SIZES = (0.5, 1.0, 1.5, 2.0, 4.0)
BOUNDS = PlanBounds(24, 8, SIZES, SIZES)
NOW = ResourcePlan(RolePlan(2, 1.0, MIB), RolePlan(1, 1.0, MIB))
ROOM = Capacity((NodeShape(16.0, 65536, 4),))

# files and flags


@for_each(
    ("text", "words"),
    [
        ("antdt: {slowness_ratio: 1}", "tuning.antdt: slowness_ratio must be a number above 1, got 1"),
        ("antdt: {backup_share: 1}", "backup_share must be above 0 and below 1, got 1.0; 0.15 is usual"),
        ("antdt: {long_window_s: 200}", "long_window_s must be >= 300, got 200.0; it holds the short window"),
        ("nearchus: {start_share: 0}", "tuning.nearchus: start_share must be above 0 and at most 1, got 0"),
        ("nearchus: {node_efficiency: 0.97}", "at most job_efficiency, got 0.97 above 0.95; the paper's are"),
        ("nearchus: {n_network: 3}", "n_network must be >= 5, got 3"),
        ("nearchus: {n_network: 3.5}", "tuning.nearchus.n_network must be a whole number, got 3.5"),
        ("dlrover_rm: {mu: 0}", "mu must be above 0 and below 1, got 0"),
        ("dlrover_rm: {k: 0}", "tuning.dlrover_rm: k must be >= 1, got 0"),
        ("dlrover_rm: {method: smooth}", "unknown tuning.dlrover_rm.method 'smooth'; choose from paper"),
        ("qore: {cpu_weight: 1.2}", "tuning.qore: cpu_weight must be <= 1, got 1.2"),
        ("antdt: {slownes_ratio: 2}", "did you mean slowness_ratio?"),
        ("dlrover_rm: {rho: 2}", "start the brain with --set tuning.dlrover_rm.rho=..."),
        ("qore: {light: 0.3}", "tuning.qore.light is decided for all jobs of a cluster"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse_job(f"name: x\ntuning: {{{text}}}")
    assert words in str(refusal.value)


def test_a_parameter_that_is_set_alone_leaves_the_others_at_the_papers_values() -> None:
    spec = parse_job("name: x\ntuning: {antdt: {slowness_ratio: 1.3}, dlrover_rm: {method: paper}}")
    assert spec.tuning == JobTuning(AntDT(1.3), dlrover_rm=SimilarJobs(StartMethod.PAPER))
    assert parse_job(dump_job(spec)) == spec


def test_a_cluster_takes_what_it_decides_and_names_who_decides_the_rest() -> None:
    settings = [("tuning.dlrover_rm.rho", -1), ("tuning.qore.light", 0.2), ("tuning.qore.cpu_weight", 0.5)]
    assert cluster_tuning(settings) == ClusterTuning(RemainingTime(-1.0), ClusterLoads(0.2, cpu_weight=0.5))
    assert cluster_tuning([]) == ClusterTuning()
    for path, value, words in (
        ("tuning.antdt.slowness_ratio", 2, "is decided by each job; set it in the job's file"),
        ("tuning.qore.lite", 0.3, "did you mean tuning.qore.light"),
        ("rho", 2, "unknown key 'rho'"),
        ("tuning.qore.light", 0.6, "tuning.qore: light, middle and heavy must rise within 0 and 1, got 0.6"),
        ("tuning.dlrover_rm.rho", 21, "rho must be within +-20, got 21"),
        ("tuning.dlrover_rm.epsilon_s", "soon", "tuning.dlrover_rm.epsilon_s must be a number, got 'soon'"),
    ):
        with pytest.raises(InvalidValueError) as refusal:
            cluster_tuning([(path, value)])
        assert words in str(refusal.value)


def test_no_key_but_the_weight_of_cores_is_decided_twice() -> None:
    groups = [f"tuning.{group}" for group in known_keys("tuning")]
    of_jobs = {f"{group}.{key}" for group in groups for key in known_keys(group)}
    assert of_jobs & set(cluster_keys()) == {"tuning.qore.cpu_weight"}


# AntDT


def slow(node: str, ratio: float, pace: Pace = Pace.PERSISTENT) -> Straggler:
    return Straggler(node, Role.WORKER, pace, ratio, 1.0, 300.0, 0.0, "ratio")


@for_each(("slowness_ratio", "n"), [(1.5, 0), (1.3, 1)])
def test_from_lambda_on_a_worker_that_is_slow_for_long_is_restarted(slowness_ratio: float, n: int) -> None:
    workers = tuple(WorkerState(f"worker-{i}", 100, 100.0 if i else 100 / 1.4) for i in range(3))
    where = Situation(Sync.ASP, workers, tuning=AntDT(slowness_ratio))
    proposed = SOLUTIONS["antdt-nd"]((slow("worker-0", 1.4),), where)
    assert [each.action for each in proposed] == [KillRestart("worker-0", Role.WORKER)] * n


@for_each(("share", "n"), [(0.15, 1), (0.3, 3)])
def test_the_backup_share_bounds_how_many_workers_a_step_goes_on_without(share: float, n: int) -> None:
    workers = tuple(WorkerState(f"worker-{i}", 100, 100.0) for i in range(10))
    findings = tuple(slow(f"worker-{i}", 3.0) for i in range(4))
    where = Situation(Sync.BSP, workers, tuning=AntDT(backup_share=share))
    assert [each.action for each in SOLUTIONS["backup-workers"](findings, where)] == [BackupWorkers(n)]


def test_the_monitor_of_a_job_has_its_ratio_and_windows() -> None:
    assert MonitorSettings.of(JobSpec("x")) == MonitorSettings()
    spec = JobSpec("x", straggler_window_s=60.0, tuning=JobTuning(AntDT(2.0, 240.0)))
    settings = MonitorSettings.of(spec)
    assert (settings.thresholds.ratio, settings.short_s, settings.long_s) == (2.0, 60.0, 240.0)
    assert MonitorSettings.of(JobSpec("x", straggler_window_s=60.0)).long_s == 120.0


# NEARCHUS


def used(tuning: Nearchus, share: float = 0.9, *, full: int = 0, n: int = 30) -> JobUse:
    """Return the use of a job whose nodes use a share of their cores; its PS fills its link so often."""
    roles = [*[Role.WORKER] * NOW.worker.count, Role.PS]
    links = {Role.WORKER: (0.0,) * n, Role.PS: (0.0,) * (n - full) + (100.0,) * full}
    nodes = tuple(
        NodeUse(f"{role}-{i}", role, 1.0, (share,) * n, links[role], tuning=tuning)
        for i, role in enumerate(roles)
    )
    return JobUse(NOW, nodes, (), 100.0, tuning=tuning)


def test_from_the_threshold_of_a_job_on_nothing_is_a_bottleneck() -> None:
    strict, mild = diagnose(used(Nearchus())), diagnose(used(Nearchus(job_efficiency=0.85)))
    assert strict is not None
    assert mild is not None
    assert (strict.bottleneck, mild.bottleneck) == (Bottleneck.MAXIMUM_UTILIZATION, Bottleneck.NONE)


@for_each(
    "tuning",
    [Nearchus(n_network=60), Nearchus(link_samples=0.3), Nearchus(link_share=1.0), Nearchus(n_network=30)],
)
def test_the_network_is_the_bottleneck_by_how_many_samples_exceed_how_much(tuning: Nearchus) -> None:
    found = diagnose(used(tuning, 0.5, full=6, n=60))
    assert found is not None
    is_usual = tuning == Nearchus()
    assert found.bottleneck is (Bottleneck.PS_NETWORK if is_usual else Bottleneck.MAXIMUM_UTILIZATION)


def test_stable_is_a_job_that_varies_less_over_as_many_samples() -> None:
    def rough(tuning: Nearchus) -> JobUse:
        nodes = used(tuning, n=6).nodes
        return replace(used(tuning), nodes=tuple(replace(n, used_cores=(0.8, 0.9) * 3) for n in nodes))

    assert not is_stable(rough(Nearchus()))
    assert is_stable(rough(Nearchus(stable_cv=0.1)))
    assert not is_stable(rough(Nearchus(stable_cv=0.1, n_stable=7)))


@for_each(("scale_up", "cpu"), [(0.5, 1.5), (1.0, 2.0)])
def test_nodes_grow_by_the_scale_up_ratio(scale_up: float, cpu: float) -> None:
    use = used(Nearchus(scale_up=scale_up), 1.0)
    after = with_remedy(Remedy.SCALE_UP, use, BOUNDS, pins=Pins(), holds=lambda _: True)
    assert after is not None
    assert after.worker.cpu == cpu


def test_a_job_starts_on_its_share_of_the_quota() -> None:
    bounds = PlanBounds(24, 8, SIZES, SIZES, quota_cpu=20.0)
    spec = JobSpec("x", policy="nearchus", bounds=bounds)
    more = replace(spec, tuning=JobTuning(nearchus=Nearchus(start_share=0.3)))
    starts = [small_start(each, ROOM) for each in (spec, more)]
    assert [start and start.worker.cpu for start in starts] == [1.0, 2.0]


def test_as_many_samples_are_kept_of_a_node_as_are_judged() -> None:
    log = UseLog(0.0, None, Nearchus(n_network=7))
    log.restart(NOW, 0.0)
    for at_s in range(1, 20):
        log.add(NodeSample("s", Role.PS, at_s, 1.0, 1, 1, 1.0, TimeSplit(), 0.5, 100.0), at_s)
    assert log.use is not None
    assert [len(node.bytes_per_s) for node in log.use.nodes] == [7]
    assert log.use.tuning == log.use.nodes[0].tuning == Nearchus(n_network=7)


# DLRover-RM


def test_the_start_from_similar_jobs_follows_k_and_mu() -> None:
    traits = JobTraits("wide_deep", 8, 128, 1 << 16, 100_000, 512, 10**7, "ada", "clicks")
    past = [
        PastJob(traits, NOW, replace(NOW, worker=RolePlan(count, 1.0, 2048)), None) for count in (2, 4, 12)
    ]

    def workers(**tuning: object) -> int:
        own = JobTuning(dlrover_rm=SimilarJobs(StartMethod.PAPER, **tuning))  # type: ignore[arg-type]
        return warm_start(JobSpec("x", plan=NOW, tuning=own), ROOM, traits, past).plan.worker.count

    assert workers(k=1) == 2, "the most similar one alone: the first of equals"
    assert workers(mu=0.99) == 2
    assert workers(mu=0.2) == 9, "0.2 * 2 + 0.8 * (0.2 * 4 + 0.8 * 12)"


def test_a_negative_rho_gives_the_cores_to_the_long_job() -> None:
    big = (12, 1, 1.0, 1.0)
    offers = [
        offer("long", (2, 1, 1.0, 1.0), big, n_left=10**9),
        offer("short", (2, 1, 1.0, 1.0), big, n_left=10**6),
    ]
    room = Capacity((NodeShape(16.0, 65536),))
    for rho, name in ((2.5, "short"), (-2.5, "long")):
        settings = BrainSettings(tuning=ClusterTuning(RemainingTime(rho)))
        assert plan_cluster(offers, room, settings).shares[name].plan.worker.count == 12


def test_with_a_large_epsilon_jobs_are_equally_urgent() -> None:
    weigh = BrainSettings(tuning=ClusterTuning(RemainingTime(2.5, 1e9))).weigh
    assert weigh is not BrainSettings().weigh
    assert (
        BrainSettings(weight="equal", tuning=ClusterTuning(RemainingTime(5.0))).weigh
        is BrainSettings(weight="equal").weigh
    )


# Qore-DL


def test_jobs_grow_up_to_the_first_threshold_of_the_cluster() -> None:
    offers = [offer("a", (4, 1, 1.0, 1.0), (8, 1, 1.0, 1.0), n_left=4_000_000, deadline_left_s=9000.0)]
    room = Capacity((NodeShape(16.0, 65536),))
    counts = []
    for light in (0.1, 0.5):
        loads = ClusterLoads(light)
        settings = BrainSettings(method="qore", tuning=ClusterTuning(qore=loads))
        counts.append(plan_cluster(offers, room, settings).shares["a"].plan.worker.count)
    assert counts == [4, 8]


def test_the_queue_takes_small_jobs_first_beyond_the_last_threshold() -> None:
    small, large = (
        WaitingOffer(job=name, owner="ada", since_s=90.0, n_sample=1000, plan=plan)
        for name, plan in (("small", NOW), ("large", replace(NOW, worker=RolePlan(12, 1.0, MIB))))
    )
    firsts = [
        first_of([small, large], "qore", QueueState(ROOM, 0.6, {}, loads)).job
        for loads in (ClusterLoads(0.5, 0.8, 0.95), ClusterLoads(0.1, 0.2, 0.3))
    ]
    assert firsts == ["large", "small"]


def test_the_weight_of_cores_counts_in_the_load_of_machines_and_in_the_choice_of_one() -> None:
    room = Capacity((NodeShape(10.0, 10 * MIB),))
    plan = ResourcePlan(RolePlan(4, 1.0, MIB), RolePlan(1, 1.0, 3 * MIB))
    assert load_of(room, [plan], 1.0) == pytest.approx(0.5)
    assert load_of(room, [plan], 0.0) == pytest.approx(0.7)
    hosts = [
        Host("cores", "cores", Amount(10, 10 * MIB), Amount(6, MIB)),
        Host("memory", "memory", Amount(10, 10 * MIB), Amount(1, 6 * MIB)),
    ]
    firsts = [
        wishes(hosts, [NewNode("worker-0", Role.WORKER, 1.0, MIB, cpu_weight=weight)])["worker-0"].first.key
        for weight in (0.7, 0.1)
    ]
    assert firsts == ["memory", "cores"]
