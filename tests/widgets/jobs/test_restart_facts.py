"""What a plan restarts of an external job stands wherever the plan is shown before it is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.query_answers import Weighed
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import DLROVER, KubernetesSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.dashboard.job_parts.change import proposal_blocks
from dlrover_nb.widgets.jobs.plans import decision_view, plans_view
from dlrover_nb.widgets.jobs.restarts import restart_facts
from dlrover_nb.widgets.jobs.why import whatif_view

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

RUN = ExternalRole(("run",))


def external(framework: Framework = Framework.TENSORFLOW) -> JobSnapshot:
    """Return a job of two workers and a PS whose programs are others'."""
    base, target = b.snapshot(), b.snapshot().target
    spec = replace(base.spec, foreign=ExternalSpec(RUN, 1000, RUN, framework))
    nodes = [b.node(f"worker-{i}", Role.WORKER, memory=100.0) for i in range(target.worker.count)]
    nodes += [b.node(f"ps-{i}", Role.PS, memory=100.0) for i in range(target.ps.count)]
    sized = [
        replace(n, cpu=target.role(n.role).cpu, memory_mib=target.role(n.role).memory_mib) for n in nodes
    ]
    return replace(base, spec=spec, nodes=tuple(sized))


def test_a_proposal_and_a_question_say_what_their_plan_restarts(words: SnapshotAssertion) -> None:
    snapshot = external()
    proposal = snapshot.open_proposal
    assert proposal is not None
    ((name, told),) = restart_facts(snapshot, proposal.candidate.plan)
    assert told == words(name="a plan with other sizes")
    known = replace(snapshot, train=replace(snapshot.train, n_sample_kept=snapshot.train.n_sample_done - 70))
    ((_, more),) = restart_facts(known, proposal.candidate.plan)
    assert more == words(name="with the rows that it costs")
    assert told in str(plans_view(snapshot).blocks)
    assert told in str(proposal_blocks(proposal, snapshot))
    plan = proposal.candidate.plan
    assert told in str(whatif_view([Weighed(plan, proposal.candidate)], snapshot).blocks)
    decision = Decision(Verdict.OVERRIDE, "ada", 1.0, plan=plan)
    assert told in str(decision_view(decision, snapshot, ((name, told),)).blocks)


def test_what_is_resized_in_place_restarts_nothing_and_no_reason_says_otherwise(
    words: SnapshotAssertion,
) -> None:
    snapshot = external()
    larger = replace(
        snapshot.target, worker=replace(snapshot.target.worker, cpu=snapshot.target.worker.cpu * 2)
    )
    ((_, told),) = restart_facts(snapshot, larger)
    assert told == words(name="where nodes are not resized")
    ((_, told),) = restart_facts(replace(snapshot, resizes_in_place=True), larger)
    assert told == words(name="where they are")
    assert "restart" not in told


def test_an_elastic_job_whose_nodes_are_not_resized_replaces_one_at_a_time(words: SnapshotAssertion) -> None:
    snapshot = external(Framework.DDP)
    larger = replace(
        snapshot.target, worker=replace(snapshot.target.worker, cpu=snapshot.target.worker.cpu * 2)
    )
    ((_, told),) = restart_facts(snapshot, larger)
    assert told == words


def test_an_elastic_job_loses_no_step(words: SnapshotAssertion) -> None:
    snapshot = external(Framework.DDP)
    more = replace(snapshot.target, worker=replace(snapshot.target.worker, count=5))
    ((_, told),) = restart_facts(snapshot, more)
    assert told == words
    assert "restarts" not in told


def test_nothing_is_said_of_our_own_jobs_of_ended_ones_and_of_those_that_an_operator_changes() -> None:
    snapshot = external()
    plan = snapshot.open_proposal.candidate.plan if snapshot.open_proposal else snapshot.target
    assert restart_facts(snapshot, snapshot.target) == ()
    assert restart_facts(b.snapshot(), plan) == ()
    assert restart_facts(replace(snapshot, phase=JobPhase.STOPPED), plan) == ()
    operated = replace(snapshot.spec, kubernetes=KubernetesSpec(operator=DLROVER))
    assert restart_facts(replace(snapshot, spec=operated), plan) == ()
