"""What the product does by itself on every real cluster: auto mode, warm start, memory before it runs out.

Subclass `LeakConformance` or `ClimbConformance`, one class per kind of cluster; its real jobs are steered as
README says. A step of them mostly sleeps, until a file exists: so a worker more is surely faster on any machine,
a plan is measured in a few seconds, and a job ends soon after what a test waits for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from dlrover_nb import trainable
from dlrover_nb.api.cluster import Cluster
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from support.driver.noted_rows import N_TRAIN, Numbered, noting_model, rows_in
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.api.job import Job
    from dlrover_nb.core.client.cluster import Cluster as CoreCluster
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

WORKER_CPU, PS_CPU, WORKER_MIB, PS_MIB = 0.5, 0.4, 512, 256
TIGHT_MIB = 128  # of a PS whose tables grow by some 2 MiB a second
SLOW_S = 0.15  # of a step, of which the rest takes milliseconds
LEAK_BYTE = 400_000  # of a step: what the limit leaves to a worker is full within some 500 steps, slow ones
# long enough for another worker to start meanwhile on a busy machine; none of it goes on once the gate is open
ROW_WIDTH = 64  # of the embedding in the growing job: some 0.6 KiB of the PS for each id
KILLED = "was killed for lack of memory"


def plan(workers: int) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, WORKER_CPU, WORKER_MIB), RolePlan(1, PS_CPU, PS_MIB))


SPEC = JobSpec(
    "steered",
    plan=plan(1),
    model=ModelSpec(embedding_dim=4, hash_size=1 << 10),
    batch_size=200,
    shard_batches=10,
    n_epoch=12,
    checkpoint_every_s=0.0,
    bounds=PlanBounds(max_workers=2, max_ps=1, worker_cpus=(WORKER_CPU,), ps_cpus=(PS_CPU,)),
)


class Visits:
    """Rows of another shape."""

    n_row = 5000

    def read(self, start: int, stop: int) -> dict[str, Any]:
        at = np.arange(start, stop)
        return {"label": at % 2, "seconds": at % 7 * 1.0, "page": (at % 5).astype(str), "shop": at % 3}


class Growing:
    """Rows of which each has ids that no other has, so that the tables grow with every batch."""

    n_row = 400_000

    def read(self, start: int, stop: int) -> dict[str, Any]:
        at = np.arange(start, stop)
        ids = {f"id_{k}": (at * 3 + k).astype(str) for k in range(3)}
        return {"label": at % 2, "at": at % 7 * 1.0, **ids}


@trainable
class Other(nn.Module):
    """Another model."""

    def __init__(self, columns: Any) -> None:
        super().__init__()
        n_input = columns.n_categorical * columns.row_width + columns.n_numeric
        self.deep = nn.Sequential(nn.Linear(n_input, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.deep(torch.cat([embedded.flatten(1), dense], 1))
        return out.squeeze(1)


class Steered(NamedTuple):
    """A job that auto mode steered to its end, what was known amid it, and its files."""

    job: Job
    why: str
    end: JobSnapshot
    notes: Path
    gate: Path


def has(snapshot: JobSnapshot, *words: str) -> bool:
    """Whether one line of the story holds all these words."""
    return any(all(word in line for word in words) for line in snapshot.story)


def reached(job: Job, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
    """Wait for a condition on the job; one that ends before fails the test at once."""

    def now() -> JobSnapshot | None:
        snapshot = job.snapshot()
        met = condition(snapshot)
        assert met or not snapshot.phase.is_final, snapshot.message
        return snapshot if met else None

    found = until(now, what=lambda: f"a condition on {job.name}: {job.snapshot().story}")
    assert found is not None
    return found


def end_of(job: Job) -> JobSnapshot:
    """Return the last snapshot of a job that has trained all its rows."""
    end = reached(job, lambda now: now.phase.is_final)
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == SPEC.n_epoch * N_TRAIN
    return end


class SteeringConformance:
    """What auto mode and warm start do with real jobs."""

    @pytest.fixture(scope="class")
    @classmethod
    def core(cls) -> CoreCluster:
        """Return the cluster under test."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def api(cls, core: CoreCluster) -> Cluster:
        return Cluster(core)

    @pytest.fixture(scope="class")
    @classmethod
    def steered(cls, api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Steered:
        """Return a job that began on one worker in auto mode, after its end."""
        folder = tmp_path_factory.mktemp("steered")
        notes, gate = folder / "rows", folder / "gate"
        model = noting_model(str(notes), gate=str(gate), slow_s=SLOW_S)
        job = api.submit(replace(SPEC, name="steered-1", mode=Mode.AUTO), model=model, data=Numbered)
        reached(job, lambda now: now.outcomes)
        why = str(job.why("p1"))
        gate.touch()
        return Steered(job, why, end_of(job), notes, gate)

    def test_auto_mode_changes_the_plan_by_itself_and_trains_every_row_exactly_once_a_pass(
        self, steered: Steered
    ) -> None:
        assert steered.end.ran == plan(2)
        noted = rows_in(steered.notes, Path(steered.end.folder))
        assert noted == dict.fromkeys(range(N_TRAIN), SPEC.n_epoch)

    def test_the_decisions_of_auto_mode_stand_in_why_and_in_the_history(
        self, api: Cluster, steered: Steered
    ) -> None:
        why = " ".join(steered.why.split())  # lines end where the view is wide enough
        assert "auto accepted it. It was an experiment, to learn which plans are better." in why, steered.why
        kept = api.history("steered-1").history
        (decision,) = kept.decisions
        assert (decision.by, decision.proposal) == ("auto", "p1")
        (outcome,) = kept.outcomes
        assert outcome.plan == plan(2)
        assert outcome.measured_samples_per_s > 1.3 * outcome.before_samples_per_s
        assert has(steered.end, "d1 accept p1 by auto")
        assert "auto  accept p1" in str(api.history("steered-1"))

    def test_the_same_job_again_begins_with_the_plan_and_the_model_of_the_first(
        self, api: Cluster, steered: Steered
    ) -> None:
        steered.gate.unlink()
        model = noting_model(str(steered.notes), gate=str(steered.gate), slow_s=SLOW_S)
        again = api.submit(replace(SPEC, name="steered-2", warm_start=True), model=model, data=Numbered)
        now = again.snapshot()
        assert now.spec.plan == now.target == plan(2)
        assert has(now, "Starts like steered-1 (", "% similar)", f"which ended on {plan(2).short}")
        assert has(now, "2 plans of similar jobs serve as the prior until samples arrive")
        assert again.whatif(workers=1).weighed[0].candidate is not None, "nothing was measured yet"
        api.delete("steered-2", force=True)

    def test_a_stranger_begins_with_what_its_user_asked_for(self, api: Cluster, steered: Steered) -> None:
        assert steered.end.ran == plan(2)
        stranger = api.submit(
            replace(SPEC, name="visitors", warm_start=True, n_epoch=1000), model=Other, data=Visits
        )
        now = stranger.snapshot()
        assert now.target == plan(1)
        assert has(now, "We start with the requested plan: no similar job has finished yet.")
        assert not has(now, "prior")
        assert stranger.whatif(workers=2).weighed[0].candidate is None
        api.delete("visitors", force=True)


class LeakConformance(SteeringConformance):
    """The same, and memory of a worker that is foreseen to run out."""

    @pytest.mark.release
    def test_a_worker_that_climbs_to_its_limit_gets_more_before_it_is_killed_as_one_unwarned_is(
        self, api: Cluster, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        one = replace(SPEC, bounds=replace(SPEC.bounds, max_workers=1))
        jobs = [
            api.submit(
                replace(one, name=name, mode=mode),
                model=noting_model("", gate=str(gate), slow_s=2 * SLOW_S, leak_byte=LEAK_BYTE),
                data=Numbered,
            )
            for name, mode in (("warned", Mode.AUTO), ("unwarned", Mode.MANUAL))
        ]
        warned, unwarned = jobs
        began = [reached(job, lambda now: now.running) for job in jobs]
        if not all(n.memory_enforced for now in began for n in now.nodes if n.role is Role.WORKER):
            gate.touch()
            pytest.skip("no control groups can be made here, so that memory limits are advisory")
        more = reached(warned, is_raised)
        assert_warned(more, f"each worker has {WORKER_MIB} MiB, with")
        reached(unwarned, lambda now: has(now, "worker-0", KILLED))
        gate.touch()
        end, _ = [end_of(job) for job in jobs]
        assert not has(end, KILLED), end.story


class ClimbConformance(LeakConformance):
    """The same, and memory of a PS."""

    def test_a_ps_whose_tables_climb_to_its_limit_gets_more_before_it_is_killed(
        self, api: Cluster, tmp_path: Path
    ) -> None:
        warned = climbing(api, tmp_path, "ps-warned", Mode.AUTO)
        reached(warned, lambda now: now.target.ps.memory_mib > TIGHT_MIB)
        (tmp_path / "brake").touch()
        more = reached(warned, is_ps_raised)
        assert_warned(more, f"each ps has {TIGHT_MIB} MiB, with")
        api.delete(warned.name, force=True)

    @pytest.mark.release  # what the one above is spared; pods that are killed so come back with more
    def test_a_ps_whose_tables_climb_unwarned_is_killed(self, api: Cluster, tmp_path: Path) -> None:
        unwarned = climbing(api, tmp_path, "ps-unwarned", Mode.MANUAL)
        reached(unwarned, lambda now: has(now, "ps-0", KILLED))
        api.delete(unwarned.name, force=True)


def climbing(api: Cluster, folder: Path, name: str, mode: Mode) -> Job:
    """Return a job whose PS reaches its limit, slowly once there is a file `brake` in a folder.

    Where limits are advisory, the test is skipped.
    """
    spec = replace(
        SPEC,
        name=name,
        mode=mode,
        plan=replace(SPEC.plan, ps=RolePlan(1, PS_CPU, TIGHT_MIB)),
        model=ModelSpec(embedding_dim=ROW_WIDTH, embedding=Embedding.HASH),
        bounds=replace(SPEC.bounds, max_workers=1),
        checkpoint_every_s=5.0,
    )
    model = noting_model("", gate=str(folder / "gate"), slow_s=SLOW_S, brake=str(folder / "brake"))
    job = api.submit(spec, model=model, data=Growing)
    began = reached(job, lambda now: now.running)
    if not all(node.memory_enforced for node in began.nodes if node.role is Role.PS):
        api.delete(name, force=True)
        pytest.skip("no control groups can be made here, so that memory limits are advisory")
    return job


def assert_warned(snapshot: JobSnapshot, words: str) -> None:
    """Check that auto mode gave more memory for this reason: by a proposal, or at once where none is fitted."""
    assert {decision.by for decision in snapshot.decisions} == {"auto"}
    told = [*(decision.why for decision in snapshot.decisions), *(p.why for p in snapshot.proposals)]
    assert any(words in why for why in told), told


def is_raised(snapshot: JobSnapshot) -> bool:
    """Whether its workers run with more memory; none of them may have been killed."""
    assert not has(snapshot, KILLED), snapshot.story
    now = snapshot.running
    return now is not None and now.worker.memory_mib > WORKER_MIB


def is_ps_raised(snapshot: JobSnapshot) -> bool:
    """Whether its PS runs with more memory; it may not have been killed."""
    assert not has(snapshot, KILLED), snapshot.story
    now = snapshot.running
    return now is not None and now.ps.memory_mib > TIGHT_MIB
