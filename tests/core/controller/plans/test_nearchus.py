"""The policy `nearchus` under the controller, on whole simulated jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.plans.restarted_controller import difference, restarted

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.bottleneck import steps
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.measured.use_log import N_PLAN, UseLog
from dlrover_nb.core.driver.job_start import initial_plan
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.planner.policies.nearchus import small_start
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import JobSubmitted, Scale
from dlrover_nb.core.structs.views.past_jobs import JobTraits

START = ResourcePlan(RolePlan(2, 1.0, 4096), RolePlan(1, 1.0, 4096))
SIZES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BOUNDS = PlanBounds(16, 8, SIZES, SIZES, quota_cpu=24.0)
QUIET = WorldSettings(report_s=15.0, faults=Faults(failures_per_day=0, slow_per_day=0))
CPU_BOUND = TermsTruth(grad_s=0.01, update_s=0.01)
DENSE_BYTES, LINK_GBIT = 100_000_000, 1.0


@dataclass(frozen=True)
class Linked:
    """A truth whose PS have a link: an iteration takes as long as the fullest one needs for all workers."""

    truth: TermsTruth
    link_bytes_per_s: float = LINK_GBIT * 1e9 / 8

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        alone = self.truth.split(plan, batch_size)
        needs_s = plan.worker.count * DENSE_BYTES / (plan.ps.count * self.link_bytes_per_s)
        return replace(alone, update_s=alone.update_s + max(needs_s - alone.total_s, 0.0))

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        return plan.worker.count * batch_size / self.split(plan, batch_size).total_s


@dataclass(frozen=True)
class Waiting:
    """A truth in which workers wait for PS in all but their gradients: more of it fills no processor."""

    truth: TermsTruth

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        alone = self.truth.split(plan, batch_size)
        return replace(alone, other_s=0.0, update_s=alone.update_s + alone.other_s)

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        return self.truth.speed(plan, batch_size)


class SimulatedLife:
    """A simulated job under a controller with one policy."""

    def __init__(self, truth, *, hours: float = 3.5, dense_bytes: int = 1 << 16, **fields) -> None:
        fields = {"mode": Mode.AUTO, "bounds": BOUNDS, "plan": START, "policy": "nearchus"} | fields
        spec = JobSpec("job", **fields)
        job = SimulatedJob(spec, truth, 1 << 40, dense_bytes=dense_bytes, embedding_dim=1)
        self.world = SimulatedWorld(
            (NodeShape(32.0, 128 * 1024, 4),), rng=np.random.default_rng(3), settings=QUIET
        )
        self.sim, self.plans = self.world.submit(job), [START]
        self.controller: Controller
        self.run(hours)

    def run(self, hours: float) -> None:
        until_s = self.world.now_s + hours * 3600
        while self.world.now_s < until_s:
            for name, event in self.world.step(until_s)[1]:
                if isinstance(event, JobSubmitted):
                    policy = POLICIES[event.spec.policy]
                    self.controller = Controller(event, SETTINGS, policy=policy)
                    continue
                for order in self.controller.handle(event):
                    if isinstance(order, Scale):
                        self.plans.append(order.target)
                        self.world.obey(name, order)

    @property
    def last(self) -> ResourcePlan:
        return self.plans[-1]

    @property
    def speed_gain(self) -> float:
        truth, batch = self.sim.job.truth, self.sim.job.spec.batch_size
        return truth.speed(self.last, batch) / truth.speed(START, batch)


@pytest.mark.more
def test_a_job_that_is_short_of_cores_grows_to_its_quota_and_stops():
    life = SimulatedLife(CPU_BOUND)
    assert life.speed_gain > 5
    assert all(plan.total_cpu <= 24 for plan in life.plans)
    assert {plan.ps.count for plan in life.plans} == {1}
    n_change = len(life.plans)
    life.run(1)
    assert len(life.plans) == n_change, "it has stopped"


@pytest.mark.release
def test_a_job_with_a_full_network_gets_ps_and_stops():
    life = SimulatedLife(Linked(TermsTruth(grad_s=0.002)), dense_bytes=DENSE_BYTES, link_gbit_per_s=LINK_GBIT)
    assert life.last.ps.count >= 3
    assert life.speed_gain > 2.5
    whys = [p.why for p in life.controller.view().proposals]
    assert any("The network of a PS is the bottleneck" in why and "of 1 Gbit/s" in why for why in whys)
    n_change = len(life.plans)
    life.run(1)
    assert len(life.plans) == n_change


@pytest.mark.release
def test_without_the_capacity_of_the_link_no_ps_is_added_and_the_reason_says_so():
    life = SimulatedLife(Linked(TermsTruth(grad_s=0.002)), dense_bytes=DENSE_BYTES)
    assert {plan.ps.count for plan in life.plans} == {1}
    assert any("set link_gbit_per_s" in p.why for p in life.controller.view().proposals)


@pytest.mark.release
def test_a_search_that_made_the_job_slower_ends_on_its_fastest_plan():
    life = SimulatedLife(Waiting(TermsTruth(grad_s=0.001, constant_s=1.0, contention_s=2.0)))
    truth, batch = life.sim.job.truth, life.sim.job.spec.batch_size
    assert len(life.plans) > 1
    assert truth.speed(life.last, batch) >= 0.95 * max(truth.speed(p, batch) for p in life.plans)
    assert axes_key(life.last) in map(axes_key, life.plans[:-1]), "it went back"
    assert len(life.plans) <= 6, "a change that did not help is not repeated"
    n_change = len(life.plans)
    life.run(1)
    assert len(life.plans) == n_change


@pytest.mark.release
@pytest.mark.parametrize(
    "pins", [Pins(workers=2), Pins(ps=1, ps_cpu=1.0), Pins(worker_cpu=1.0), Pins(ps=1, workers=2, ps_cpu=1.0)]
)
def test_pins_hold_while_the_rest_grows(pins):
    life = SimulatedLife(CPU_BOUND, pins=pins)
    assert all(pins.allows(plan) for plan in life.plans)
    assert life.speed_gain > 1.5


@pytest.mark.release
def test_a_plan_over_the_budget_or_rejected_is_not_proposed():
    dear = SimulatedLife(CPU_BOUND, budget_per_hour=0.2)
    prices = [p.candidate.cost_per_hour for p in dear.controller.view().proposals]
    assert prices
    assert max(prices) <= 0.2
    asked = SimulatedLife(CPU_BOUND, mode=Mode.SUGGEST, hours=1)
    proposal = asked.controller.view().proposals[-1]
    assert (proposal.status, proposal.kind) == (ProposalStatus.PENDING, ProposalKind.EXPLORE)
    assert proposal.why.startswith("By nearchus: ")
    assert asked.controller.queries().explain(None).bottleneck


def test_a_job_that_names_a_quota_and_no_plan_starts_on_a_part_of_it():
    capacity = Capacity((NodeShape(32.0, 128 * 1024, 4),))
    asked = JobSpec("job", policy="nearchus", bounds=PlanBounds(quota_cpu=100.0))
    assert small_start(asked, capacity).short == "2w x 4 + 1p x 4"
    assert small_start(replace(asked, pins=Pins(ps_cpu=0.25)), capacity).short == "2w x 4 + 1p x 0.25"
    others = {"policy": "optimus"}, {"bounds": PlanBounds()}, {"plan": START}
    assert [small_start(replace(asked, **other), capacity) for other in others] == [None] * 3
    traits = JobTraits("wide_deep", 1, 1, 1, 1, 512, 1000)
    begun = initial_plan(asked, traits, capacity, ())
    assert begun.spec.plan == small_start(asked, capacity)
    assert begun.why.startswith(f"Starts with {begun.spec.plan.short},")
    assert initial_plan(replace(asked, plan=START), traits, capacity, ()).spec.plan == START


@pytest.mark.more
def test_any_job_names_its_bottleneck_whatever_its_policy(words):
    life = SimulatedLife(CPU_BOUND, policy="fixed-plan", hours=1)
    assert life.controller.queries().explain(None).bottleneck == words


@pytest.mark.more
def test_a_restart_in_the_middle_of_a_search_changes_nothing():
    life = SimulatedLife(CPU_BOUND, hours=1)
    again = restarted(life.controller)
    assert not difference(life.controller, again)
    use = life.controller._measured.use
    assert again._measured.use == use
    assert len(steps(use)) > 1


@pytest.mark.more
def test_a_snapshot_without_a_record_of_use_is_read_and_the_search_begins_anew():
    life = SimulatedLife(CPU_BOUND, hours=1)
    old = life.controller._measured.__dict__.pop("_use")
    again = restarted(life.controller)
    assert old.use is not None
    assert again._measured.use is None


def sample(node: str, role: Role, at_s: float, used_cores: float = 0.5) -> NodeSample:
    return NodeSample(node, role, at_s, 1.0, 1, 1, 1.0, TimeSplit(), used_cores, 100.0, n_byte_sent=7)


def test_the_record_of_use_is_bounded_by_the_plan_and_forgets_lost_nodes():
    log = UseLog(2.0, None)
    log.add(sample("early", Role.PS, 0.5), 0.5)
    assert log.use is None, "no plan is in place yet"
    for n in range(3 * N_PLAN):
        log.restart(replace(START, worker=replace(START.worker, cpu=n + 1)), 1000.0 * n)
        for i in range(60):
            for node, role in ((f"w{i % 7}", Role.WORKER), ("w", Role.WORKER), ("s", Role.PS)):
                log.add(sample(node, role, 1000.0 * n + i), 1000.0 * n + i)
    use = log.use
    assert len(use.earlier) <= N_PLAN
    assert len(use.nodes) == 3
    assert max(len(node.used_cores) for node in use.nodes) == 30


def test_a_short_last_report_does_not_change_what_a_plan_used():
    log = UseLog(0.0, None)
    log.restart(START, 0.0)
    for at_s in range(1, 7):
        for node, role in (("w0", Role.WORKER), ("w1", Role.WORKER), ("s", Role.PS)):
            log.add(sample(node, role, at_s), at_s)
    before = log.use.cores()
    log.add(replace(sample("w0", Role.WORKER, 6.1, 0.0), window_s=0.1), 6.1)
    log.restart(replace(START, worker=replace(START.worker, cpu=2.0)), 7.0)
    assert [each.used_cores for each in log.use.earlier] == [before]


def test_reports_before_a_plan_has_settled_do_not_count():
    log = UseLog(3.0, 1.0)
    log.restart(START, 10.0)
    log.add(sample("w0", Role.WORKER, 13.5), 13.5)
    assert log.use.nodes == ()
    log.add(sample("w0", Role.WORKER, 14.0), 14.0)
    assert log.use.nodes[0].bytes_per_s == (7.0,)
    assert log.use.link_bytes_per_s == 125e6
    log.restart(None, 20.0)
    log.restart(START, 30.0)
    assert len(log.use.nodes) == 1, "a pause of the same plan keeps what was reported"
    assert axes_key(log.use.plan) == axes_key(START)
    assert math.isclose(log.use.cores(), 0.5)


def test_the_link_is_what_the_job_tells_or_else_the_most_that_a_worker_measured(words):
    given, unknown = UseLog(0.0, 1.0), UseLog(0.0, None)
    for log in (given, unknown):
        log.restart(START, 0.0)
        log.add(sample("s", Role.PS, 1.0), 1.0)
    assert (given.use.link_bytes_per_s, unknown.use.link_bytes_per_s) == (125e6, None)
    for gbit_per_s in (2.0, 8.0, 4.0):
        for log in (given, unknown):
            log.add(replace(sample("w0", Role.WORKER, 2.0), link_gbit_per_s=gbit_per_s), 2.0)
    assert (given.use.link_bytes_per_s, unknown.use.link_bytes_per_s) == (125e6, 1e9)
    assert given.use.link_source == "link_gbit_per_s of the job"
    assert unknown.use.link_source == words


def carrying(role: Role, n_byte: int, probed: float, *, n: int = 5, said: float | None = None) -> UseLog:
    """Return the record of a job in which a node carried bytes in each of `n` seconds."""
    log = UseLog(0.0, said)
    log.restart(START, 0.0)
    for at_s in range(1, n + 1):
        log.add(replace(sample("x", role, at_s), n_byte_received=n_byte), at_s)
    log.add(replace(sample("w0", Role.WORKER, n + 1), link_gbit_per_s=probed), n + 1)
    return log


def test_a_probe_that_was_far_below_what_a_ps_carries_says_nothing_of_a_full_network(words):
    """One under a CPU quota gave 0.006 Gbit/s for a loopback: a PS of 1 MB/s was a full network then."""
    use = carrying(Role.PS, 1_000_000, 0.006).use
    assert use.link_bytes_per_s is None
    assert use.link_source == words
    again = carrying(Role.PS, 1_000_000, 0.24)
    assert again.use.link_bytes_per_s == pytest.approx(0.24e9 / 8), "a better probe is taken"
    again.restart(replace(START, worker=replace(START.worker, cpu=2.0)), 100.0)
    assert again.use.link_bytes_per_s == pytest.approx(0.24e9 / 8), "also under the next plan"


def test_the_capacity_of_a_link_is_not_below_what_a_ps_carried(words):
    assert carrying(Role.PS, 1_050_000, 0.008).use.link_bytes_per_s == 1_050_000
    assert carrying(Role.PS, 9_000_000, 0.008, n=4).use.link_bytes_per_s == 1e6, "a message is no rate"
    assert carrying(Role.WORKER, 9_000_000, 0.008).use.link_bytes_per_s == 1e6, "it may share memory"
    said = carrying(Role.PS, 1_050_000, 0.0, said=0.008).use
    assert (said.link_bytes_per_s, said.link_source) == (1e6, "link_gbit_per_s of the job")
    wrong = carrying(Role.PS, 9_000_000, 0.0, said=0.008).use
    assert wrong.link_bytes_per_s is None
    assert "(0.008 Gbit/s)" in wrong.link_source
    assert wrong.link_source == words
