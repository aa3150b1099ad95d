"""A real job of processes in a folder of its own, for tests."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from typing import TYPE_CHECKING
from unittest import mock

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.shards import Purpose
from support.waiting import LIMIT_S, is_gone, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.training.shards import Shard
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

GOOD_AUC = 0.85


def plan(workers: int = 1, ps: int = 1, *, worker_cpu: float = 0.5, ps_cpu: float = 0.4) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, worker_cpu, 512), RolePlan(ps, ps_cpu, 256))


@contextlib.contextmanager
def training_held_at(n_row: int) -> Iterator[None]:
    """Grant no more rows to train once `n_row` of them are done.

    How long nodes take to start and rows to train has no fixed ratio on a busy machine, so a job with plans to
    change could be done before its nodes are there.
    """
    grant = ShardLedger.grant

    def held(ledger: ShardLedger, owner: str, **most: int | None) -> Shard | None:
        is_trained = ledger.split.purpose is Purpose.TRAIN and ledger.counts().n_sample_done >= n_row
        return None if is_trained else grant(ledger, owner, **most)

    with mock.patch.object(ShardLedger, "grant", held):
        yield


@contextlib.contextmanager
def training_slowed_from(n_row: int, *, every_s: float = 1.0) -> Iterator[None]:
    """Grant a shard to train only every `every_s` seconds once `n_row` rows are done.

    For deterministic jobs, which could not change their plan while training is held: pauses there begin when a
    step is complete, and a step that is held never is.
    """
    grant, last_s = ShardLedger.grant, -math.inf

    def slowed(ledger: ShardLedger, owner: str, **most: int | None) -> Shard | None:
        nonlocal last_s
        if ledger.split.purpose is Purpose.TRAIN and ledger.counts().n_sample_done >= n_row:
            if time.monotonic() < last_s + every_s:
                return None
            last_s = time.monotonic()
        return grant(ledger, owner, **most)

    with mock.patch.object(ShardLedger, "grant", slowed):
        yield


class TcpBackend(LocalBackend):
    """Processes that talk over TCP, as between hosts."""

    def listen(self) -> str:
        return "tcp://127.0.0.1"


class Job:
    """A job in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        features: FeatureSpec,
        *,
        backend: type[LocalBackend] = LocalBackend,
        history: str = "",
        **changes: object,
    ) -> None:
        fields = {
            "plan": plan(),
            "mode": Mode.MANUAL,
            "checkpoint_every_s": 0.0,
            "heartbeat_timeout_s": LIMIT_S,
        }
        self.spec = JobSpec("real", **(fields | changes))  # type: ignore[arg-type]
        self.folder, self.features = folder / "run", features
        self.history = history or f"sqlite:///{folder / 'history.db'}"
        self.backend = backend(self.folder, cpus=3.0)
        self.driver = own_job.begin(
            self.spec,
            features,
            own_job.RunSetup(self.backend, self.folder, history_url=self.history, clock=SystemClock()),
        )
        self.pids: set[int] = set()

    def close(self) -> None:
        """End it, and see that no node is left."""
        self.driver.close()
        until(lambda: all(map(is_gone, self.pids)), what="the end of all nodes")

    @property
    def now(self) -> JobSnapshot:
        return self.driver.snapshot()

    def until(self, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
        end = time.monotonic() + LIMIT_S
        while not condition(now := self.now):
            self.pids |= {node.pid for node in now.nodes if node.pid}
            assert not now.phase.is_final, f"{now.phase}: {now.message}"
            assert time.monotonic() < end, f"{now.phase}: {now.message} {now.nodes} {now.train}"
            time.sleep(0.05)
        return now

    def until_end(self) -> JobSnapshot:
        assert self.driver.join(LIMIT_S), self.now
        return self.now

    def story_has(self, *words: str) -> bool:
        """Whether one line of the story holds all these words."""
        return any(all(word in line for word in words) for line in self.now.story)

    def scale(self, target: ResourcePlan) -> Decision:
        return self.driver.decide(Decision(Verdict.SCALE, "ada", time.time(), plan=target))

    def kill(self, role: Role) -> str:
        node = next(n for n in self.now.nodes if n.role is role and n.pid)
        assert node.pid is not None
        os.kill(node.pid, signal.SIGKILL)
        return node.id


def n_process(now: JobSnapshot) -> int:
    """Return how many nodes have a process: one that is listed may still wait for it."""
    return sum(view.pid is not None for view in now.nodes)


def succeeded(job: Job) -> JobSnapshot:
    """Assert that the job trained every row, counted exactly, and learnt something."""
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    n_shard = math.ceil(job.features.n_train / (job.spec.batch_size * job.spec.shard_batches))
    assert end.train.done == end.train.total == n_shard * job.spec.n_epoch
    assert end.train.n_sample_done == job.features.n_train * job.spec.n_epoch
    assert end.evaluation is not None
    assert end.evaluation.n_sample == job.features.n_eval
    assert end.evaluation.auc > GOOD_AUC
    assert not end.nodes
    return end
