"""What actions against stragglers do in the simulated world: as its physics say, and counted as they end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans.sim_world import make_job, make_plan, make_world, only, play, scale

from dlrover_nb.core.simulator.one_job.progress import Pacing
from dlrover_nb.core.structs.decisions.actions import (
    ActionChoice,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MitigationChoice,
    MoveBuckets,
)
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    Mitigate,
    MitigationEnded,
    NodeLeft,
    NodeReported,
    NodeStarted,
    PlanApplied,
    ProgressMade,
)

SLOW_S, ACT_S, LATER_S, END_S = 300.0, 600.0, 1500.0, 2400.0
WORKERS = tuple(f"job-worker-{i}" for i in range(1, 5))
PS = ("job-ps-1", "job-ps-2")


class World:
    """A job of 4 workers and 2 PS, one of which gets slow after a while."""

    def __init__(self, slow: str, factor: float = 0.5, *, machines=(), **job) -> None:
        self.world = make_world(machines=machines)
        self.sim = self.world.submit(make_job(plan=make_plan(4, 2), n_sample=10**9, **job))
        self.orders = [(SLOW_S, lambda: self.slow_down(slow, factor))]
        self.speeds: dict[float, float] = {}
        self.watch(ACT_S - 1)

    def slow_down(self, name: str, factor: float) -> None:
        node = next(each for each in self.sim._sim_nodes.nodes if each.id == name)
        self.sim.change_speed(node, factor)

    def watch(self, at_s: float) -> None:
        self.orders.append((at_s, lambda: self.speeds.update({at_s: self.sim.samples_per_s})))

    def act(self, action, at_s: float = ACT_S, decision: str = "d1") -> None:
        choice = MitigationChoice(decision, ActionChoice.of(action), "ada")
        self.orders.append((at_s, lambda: self.world.obey("job", Mitigate(choice))))

    def play(self, until_s: float = END_S):
        self.watch(LATER_S)
        played = play(self.world, orders=self.orders, until_s=until_s)
        trained = sum(e.sample.n_sample for e in only(played, NodeReported) if e.sample.role is Role.WORKER)
        told = only(played, ProgressMade)[-1].n_sample_done
        assert abs(told - trained) <= 4, "what workers report sums to the progress"
        return played

    @property
    def gain(self) -> float:
        return self.speeds[LATER_S] / self.speeds[ACT_S - 1]


def ended(played, decision: str = "d1"):
    [event] = [each for each in only(played, MitigationEnded) if each.decision == decision]
    return event


@given(
    st.lists(st.tuples(st.floats(0.1, 1.0), st.integers(1, 4096)), min_size=2, max_size=8),
    st.integers(0, 9),
)
def test_workers_in_step_are_as_fast_as_the_slowest_that_is_waited_for(workers, n_backup):
    factors, sizes = [f for f, _ in workers], [m for _, m in workers]
    times = [0.01 * m for m in sizes]
    paced = Pacing(sizes, times, factors, n_backup)
    waited = [i for i in range(len(workers)) if i not in paced.left_out]
    assert len(waited) == max(len(workers) - n_backup, 1)
    assert paced.iter_s == max(times[i] / factors[i] for i in waited)
    assert sum(paced.speeds) == pytest.approx(sum(sizes[i] for i in waited) / paced.iter_s)
    asynchronous = Pacing(sizes, times, factors)
    assert sum(asynchronous.speeds) == pytest.approx(100 * sum(factors))
    assert sum(Pacing(sizes, times, factors, 0).speeds) <= sum(asynchronous.speeds) * (1 + 1e-9)


@pytest.mark.parametrize("sync", [Sync.BSP, Sync.ASP])
def test_a_restarted_worker_is_another_one_of_normal_speed_beside_which_the_old_one_trains_on(sync):
    world = World("job-worker-2", sync=sync)
    world.act(KillRestart("job-worker-2", Role.WORKER))
    world.watch(ACT_S + 1)
    played = world.play()
    assert ended(played).why_not == ""
    assert world.speeds[ACT_S + 1] == world.speeds[ACT_S - 1], "training goes on meanwhile"
    assert world.gain == pytest.approx(2.0 if sync is Sync.BSP else 4 / 3.5)
    [started] = [e for e in only(played, NodeStarted) if e.at_s > ACT_S]
    assert (started.node, started.pending_s) == ("job-worker-5", 30.0)
    assert [(e.node, e.error) for e in only(played, NodeLeft)] == [("job-worker-2", "")]
    assert len(only(played, PlanApplied)) == 1, "the plan is the same"


def test_a_restarted_ps_hands_over_to_another_one():
    world = World("job-ps-1")
    world.act(KillRestart("job-ps-1", Role.PS))
    played = world.play()
    assert ended(played).why_not == ""
    assert world.gain == pytest.approx(2.0)
    assert [e.node for e in only(played, NodeLeft)] == ["job-ps-1"]


def test_sizes_by_speed_let_workers_in_step_wait_less():
    world = World("job-worker-2", sync=Sync.BSP)
    world.act(AdjustBatches(tuple((w, 290 if w == "job-worker-2" else 586) for w in WORKERS)))
    played = world.play()
    assert ended(played).at_s == ACT_S
    assert dict(only(played, BatchSizesSet)[0].sizes) == {
        w: 290 if w == "job-worker-2" else 586 for w in WORKERS
    }
    assert world.gain > 1.3
    last = {e.sample.node: e.sample for e in only(played, NodeReported)}
    assert last["job-worker-2"].n_sample == pytest.approx(last["job-worker-1"].n_sample * 290 / 586, rel=0.01)
    for each in last.values():
        assert each.split.total_s == pytest.approx(each.iter_s, rel=1e-6)


def test_sizes_hold_for_the_workers_that_agreed():
    world = World("job-worker-2", sync=Sync.BSP)
    world.act(AdjustBatches(tuple((w, 290 if w == "job-worker-2" else 586) for w in WORKERS)))
    world.act(KillRestart("job-worker-2", Role.WORKER), 900.0, "d2")
    played = world.play()
    assert [event.sizes for event in only(played, BatchSizesSet)][1:] == [()]
    assert world.gain == pytest.approx(2.0)


def test_backup_workers_are_not_waited_for_and_still_report_how_slow_they_are():
    world = World("job-worker-2", 0.25, sync=Sync.BSP)
    world.act(BackupWorkers(1))
    played = world.play()
    assert ended(played).why_not == ""
    assert world.gain == pytest.approx(3.0), "three of four count, four times as fast"
    last = {e.sample.node: e.sample for e in only(played, NodeReported)}
    late, other = last["job-worker-2"], last["job-worker-1"]
    assert (late.n_sample, late.n_iter > 0) == (0, True)
    assert late.iter_s == pytest.approx(4 * other.iter_s, rel=0.01)


def test_moved_parameters_let_a_slow_ps_serve_as_fast_as_the_others():
    world = World("job-ps-1")
    world.act(MoveBuckets("job-ps-1"))
    played = world.play()
    assert ended(played).at_s == ACT_S + world.world.settings.transition.seamless_s
    assert world.gain == pytest.approx(0.75 / 0.5), "as fast as the mean of both"
    busy = {e.sample.node: 1 - e.sample.split.idle_s / e.sample.iter_s for e in only(played, NodeReported)}
    assert busy["job-ps-1"] == pytest.approx(busy["job-ps-2"])


def test_a_slow_ps_shows_in_its_own_reports_and_the_others_are_idle_meanwhile():
    played = World("job-ps-1").play(ACT_S)
    last = {e.sample.node: e.sample for e in only(played, NodeReported)}
    served = {node: last[node].split.lookup_s + last[node].split.update_s for node in PS}
    assert served["job-ps-1"] > 2 * served["job-ps-2"]
    for node in PS:
        assert last[node].split.total_s == pytest.approx(last[node].iter_s, rel=1e-6)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (AdjustRates((("job-worker-1", 0.5),)), "no learning rates"),
        (AdjustBatches((("job-worker-1", 5),)), "must be those of all 4 workers"),
        (BackupWorkers(1), "must keep in step"),
        (KillRestart("job-worker-9", Role.WORKER), "expected a worker among job-worker-1, "),
        (MoveBuckets("job-worker-1"), "expected a ps among job-ps-1, job-ps-2, got job-worker-1"),
    ],
)
def test_what_is_impossible_ends_with_its_reason_and_changes_nothing(action, words):
    world = World("job-worker-2", sync=Sync.ASP)
    world.act(action)
    played = world.play()
    assert words in ended(played).why_not
    assert world.gain == 1.0


def test_a_restart_without_room_is_given_up_and_the_old_node_stays(words):
    world = World("job-worker-2", machines=[NodeShape(24.0, 128 * 1024)])
    world.act(KillRestart("job-worker-2", Role.WORKER))
    played = world.play()
    event = ended(played)
    assert event.at_s == ACT_S + world.world.settings.transition.plan_limit_s
    assert event.why_not == words
    assert sorted(node.id for node in world.sim.nodes) == sorted((*WORKERS, *PS))
    assert world.sim.running == make_plan(4, 2)


def test_a_restart_whose_new_node_is_lost_waits_for_another_one():
    world = World("job-worker-2")
    world.act(KillRestart("job-worker-2", Role.WORKER))
    world.orders.append((ACT_S + 5, lambda: lose(world, "job-worker-5")))
    played = world.play()
    assert ended(played).why_not == ""
    assert "job-worker-6" in {node.id for node in world.sim.nodes}
    assert len(world.sim.nodes) == 6


def lose(world: World, name: str) -> None:
    node = next(each for each in world.sim._sim_nodes.nodes if each.id == name)
    world.sim.lose(node, "its machine failed")


@pytest.mark.parametrize("action", [KillRestart("job-worker-2", Role.WORKER), MoveBuckets("job-ps-1")])
def test_a_change_of_plan_and_the_end_of_the_job_end_what_is_under_way(action, words):
    world = World("job-worker-2")
    world.act(action)
    world.orders.append((ACT_S + 5, scale(world.world, make_plan(3, 2))))
    assert ended(world.play()).why_not == words
    assert world.sim.running == make_plan(3, 2)
    other = World("job-worker-2")
    other.act(action)
    other.orders.append((ACT_S + 5, lambda: other.world.stop("job", "ada")))
    assert ended(play(other.world, orders=other.orders)).why_not == "the job has stopped"
    assert other.sim.phase is JobPhase.STOPPED


def test_one_action_at_a_time(words):
    world = World("job-worker-2")
    world.act(KillRestart("job-worker-2", Role.WORKER))
    world.act(MoveBuckets("job-ps-1"), ACT_S + 5, "d2")
    played = world.play()
    assert ended(played).why_not == ""
    assert ended(played, "d2").why_not == words
