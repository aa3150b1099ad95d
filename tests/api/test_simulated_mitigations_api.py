"""Actions against stragglers through the API and the verbs, decided by the real controller of a simulated job."""

from __future__ import annotations

import numpy as np
import pytest
from support.waiting import LIMIT_S, until

from dlrover_nb import api
from dlrover_nb.api.views.stragglers_view import MitigationsView
from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.errors import InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.commands import Commands

TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)
PLAN = ResourcePlan(worker=RolePlan(4, 1.0, 2048), ps=RolePlan(2, 1.0, 2048))
SLOW = Faults(failures_per_day=0, slow_per_day=12.0, slow_factor=(0.3, 0.4), slow_s=1e6)


@pytest.fixture
def core():
    settings = WorldSettings(report_s=15.0, faults=SLOW)
    world = SimulatedWorld([NodeShape(16.0, 65_536, 4)], rng=np.random.default_rng(2), settings=settings)
    made = SimulatedCluster(world, SETTINGS, lambda _spec: simulated(), speed=6000.0)
    yield made
    made.shutdown(force=True)


def simulated(**fields) -> SimulatedJob:
    spec = JobSpec("ads", owner="ada", plan=PLAN, policy="fixed-plan", **fields)
    return SimulatedJob(spec, TRUTH, 1 << 40)


def added(core, **fields) -> api.Job:
    core.add(simulated(**fields))
    return api.Cluster(core).job("ads")


def waiting(view):
    """Return a view in which an action waits; None: at its moment none did."""
    return view if view.snapshot.open_mitigation is not None else None


def accepted(job):
    """Accept what waits; None: nothing did, or a better one had come: virtual time is fast."""
    try:
        return job.accept(why="its machine is busy")
    except (NotFoundError, StaleDecisionError):
        return None


def by_status(job, status):
    return [each for each in job.snapshot().mitigations if each.status is status]


@pytest.mark.release
def test_an_action_is_waited_for_shown_everywhere_accepted_and_in_effect(core):
    job = added(core, mode=Mode.SUGGEST, sync=Sync.ASP)
    shown = job.wait(until="mitigation", timeout_s=LIMIT_S)
    assert shown.snapshot.open_mitigation is not None
    for show in (job.stragglers, job.mitigations, job.status, job.plans):
        view = until(lambda show=show: waiting(show()), what="an action that waits")
        assert f"apply ads {view.snapshot.open_mitigation.id}" in str(view)
    cluster = api.Cluster(core)
    until(lambda: any(line.open_mitigation for line in cluster.jobs()), what="the list of jobs to say so")
    made = until(lambda: accepted(job), what="an action that is accepted before a better one comes")
    assert made.decision.proposal.startswith("m")
    until(lambda: by_status(job, ProposalStatus.APPLIED), what="the end of the action")
    assert "in effect" in str(job.mitigations())
    with pytest.raises(StaleDecisionError):
        job.accept(made.decision.proposal)


def test_sizes_are_ordered_by_the_verb_and_taken_back_by_undo(core):
    job = added(core, mode=Mode.MANUAL, sync=Sync.BSP)
    until(lambda: (s := job.snapshot()).running is not None and s.samples_per_s > 0, what="training")
    workers = [node.id for node in job.snapshot().nodes if node.role is Role.WORKER]
    commands = Commands(lambda *_, **__: core, auto_connect=True, address="ray")
    sizes = ",".join(f"{name}={n}" for name, n in zip(workers, (256, 768, 512, 512), strict=True))
    made = commands.run(GRAMMAR.parse_line(f"mitigate ads --batches {sizes} --why 'it is slow'"))
    until(lambda: by_status(job, ProposalStatus.APPLIED), what="the sizes")
    assert "in effect" in str(commands.run(GRAMMAR.parse_line("mitigate ads")))
    undone = commands.run(GRAMMAR.parse_line(f"undo ads {made.decision.id}"))
    assert undone.decision.undoes == made.decision.id
    until(lambda: len(by_status(job, ProposalStatus.APPLIED)) == 2, what="the undo")
    told = str(undone)
    assert f"(undoes {made.decision.id})" in told


def test_what_the_job_cannot_do_is_refused_with_what_would(core):
    job = added(core, mode=Mode.MANUAL, sync=Sync.ASP)
    until(lambda: (s := job.snapshot()).running is not None and s.samples_per_s > 0, what="training")
    with pytest.raises(InvalidValueError, match="sync must be bsp"):
        job.mitigate(backup=1)
    with pytest.raises(InvalidValueError, match="must name a node of job ads, got 'worker-99'"):
        job.mitigate(restart="worker-99")
    with pytest.raises(InvalidValueError, match="give exactly one"):
        job.mitigate(why="it is slow")
    assert isinstance(job.mitigate(), MitigationsView), "as the verb: without an action it shows them"
    with pytest.raises(NotFoundError):
        job.accept("m7")
    assert job.snapshot().mitigations == ()
