"""What a wait still waits for, from a snapshot alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders
from support.jobs.cluster_double import snapshot_of

from dlrover_nb.core.client.until import Until, first_steps, is_reached, waited_for
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.snapshot import ROOM, NodePhase, NodeView

PLAN = ResourcePlan(worker=RolePlan(3, 0.5, 1024), ps=RolePlan(1, 0.5, 512))
TRAINING = replace(snapshot_of(JobSpec("ctr", plan=PLAN)), mode=Mode.SUGGEST)
STARTING = replace(
    TRAINING, phase=JobPhase.STARTING, samples_per_s=0.0, train=ShardCounts(0, 0, 9, 0, 90_000)
)


def node(number: int, phase: NodePhase, waits_for: str = "") -> NodeView:
    return NodeView(f"worker-{number}", Role.WORKER, phase, 0.5, 1024, True, 0.0, waits_for=waits_for)


def test_a_starting_job_counts_the_nodes_that_are_up(words) -> None:
    nodes = (node(0, NodePhase.READY), node(1, NodePhase.PENDING))
    assert first_steps(replace(STARTING, nodes=nodes)) == words


def test_a_node_without_room_says_so(words) -> None:
    nodes = (node(0, NodePhase.READY), node(1, NodePhase.PENDING, ROOM))
    told = first_steps(replace(STARTING, nodes=nodes))
    assert told == words


@settings(deadline=None)
@given(st.lists(st.sampled_from(NodePhase), max_size=9))
def test_never_more_nodes_are_up_than_the_plan_has(phases: list[NodePhase]) -> None:
    nodes = tuple(node(number, phase) for number, phase in enumerate(phases))
    n_up = int(first_steps(replace(STARTING, nodes=nodes)).split()[2])
    assert n_up == min(4, phases.count(NodePhase.READY))


@settings(deadline=None)
@given(st.sampled_from(JobPhase), st.integers(0, 90_000), st.floats(0, 1e6))
def test_first_steps_are_waited_for_only_while_nothing_is_trained(
    phase: JobPhase, n_done: int, rate: float
) -> None:
    train = ShardCounts(0, 0, 9, n_done, 90_000)
    snapshot = replace(STARTING, phase=phase, train=train, samples_per_s=rate)
    is_early = phase in {JobPhase.STARTING, JobPhase.TRAINING} and not n_done and not rate
    assert bool(first_steps(snapshot)) == is_early


@for_each(
    ("until", "changes", "told"),
    [
        (Until.END, {}, "the end of ctr: training, 40.0 % of 100,000 samples"),
        (Until.END, {"phase": JobPhase.EVALUATING}, "the end of ctr: evaluating"),
        (Until.PROPOSAL, {}, "a proposal: 0 steady measurements so far"),
        (
            Until.PROPOSAL,
            {"mode": Mode.MANUAL},
            "a proposal: there are none in manual mode; mode suggest turns them on",
        ),
        (Until.OUTCOME, {"under_way": "d2"}, "d2 to be applied: 0 of 4 nodes up"),
        (Until.OUTCOME, {"measuring": "d2"}, "d2 to be measured: 10,000 samples/s now"),
    ],
)
def test_a_wait_says_what_is_missing(until: Until, changes: dict[str, object], told: str) -> None:
    snapshot = replace(TRAINING, **changes)
    assert not is_reached(snapshot, until)
    assert waited_for(snapshot, until) == told


@settings(deadline=None)
@given(st.sampled_from(Until), st.sampled_from([phase for phase in JobPhase if phase.is_final]))
def test_every_wait_is_over_with_the_job(until: Until, phase: JobPhase) -> None:
    assert is_reached(replace(TRAINING, phase=phase, under_way="d1"), until)


def test_a_wait_for_an_action_ends_when_one_is_open_and_says_who_is_slow(words) -> None:
    assert waited_for(TRAINING, Until.MITIGATION) == words
    slow = replace(TRAINING, stragglers=(builders.straggler(), builders.straggler("ps-0", Role.PS)))
    assert waited_for(slow, Until.MITIGATION) == words
    manual = replace(slow, mode=Mode.MANUAL)
    assert waited_for(manual, Until.MITIGATION) == words
    assert not is_reached(slow, Until.MITIGATION)
    opened = replace(slow, mitigations=(builders.mitigation(),))
    assert is_reached(opened, Until.MITIGATION)
    assert not is_reached(opened, Until.PROPOSAL), "a wait for a plan is one for a plan"
