"""An action against stragglers from names, sizes and factors that people write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each
from support.jobs import builders

from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    SetSize,
)
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase

JOB = builders.snapshot(
    nodes=(
        builders.node("worker-0", Role.WORKER, memory=1.0),
        builders.node("quick-start-worker-1", Role.WORKER, memory=1.0),
        builders.node("ps-0", Role.PS, memory=1.0),
    )
)
PS_CPU, PS_MIB = JOB.nodes[2].cpu, JOB.nodes[2].memory_mib


@for_each(
    ("request_", "action"),
    [
        (Mitigate(restart="worker-0"), KillRestart("worker-0", Role.WORKER)),
        (Mitigate(restart="ps-0"), KillRestart("ps-0", Role.PS)),
        (Mitigate(restart="worker-1"), KillRestart("quick-start-worker-1", Role.WORKER)),
        (Mitigate(move="ps-0"), MoveBuckets("ps-0")),
        (
            Mitigate(batches={"worker-1": 32, "worker-0": 96}),
            AdjustBatches((("worker-0", 96), ("quick-start-worker-1", 32))),
        ),
        (
            Mitigate(batches={"worker-1": 32, "worker-0": 96}, accumulate={"worker-0": 3, "worker-1": 1}),
            AdjustBatches((("worker-0", 96), ("quick-start-worker-1", 32)), (("worker-0", 3),)),
        ),
        (Mitigate(backup=0), BackupWorkers(0)),
        (Mitigate(cores={"ps-0": 2.5}), SetSize("ps-0", Role.PS, 2.5, PS_MIB)),
        (Mitigate(memory={"ps-0": 4096}), SetSize("ps-0", Role.PS, PS_CPU, 4096)),
        (Mitigate(cores={"ps-0": 2.5}, memory={"ps-0": 4096}), SetSize("ps-0", Role.PS, 2.5, 4096)),
        (Mitigate(rates={"worker-0": 0.5}), AdjustRates((("worker-0", 0.5),))),
    ],
)
def test_each_request_is_the_action_that_it_names(request_, action):
    assert request_.chosen(JOB) == action


@for_each(
    ("request_", "error"),
    [
        (Mitigate(), "one of restart, .*, rates, cores, memory, got none; give exactly one"),
        (Mitigate(restart="worker-0", backup=1), "got restart and backup; give exactly one"),
        (
            Mitigate(restart="worker-9"),
            "restart must name a node of job quick-start, got 'worker-9'; there are: worker-0, quick-start-w",
        ),
        (Mitigate(move="worker-0"), "must name a parameter server .* there are: ps-0"),
        (Mitigate(batches={"ps-0": 3}), "batches must name workers .* there are: worker-0"),
        (Mitigate(rates={"ps-0": 3.0}), "rates must name workers"),
        (Mitigate(batches={}), "sizes must name at least one worker"),
        (Mitigate(batches={"worker-0": 0, "worker-1": 8}), "batch size of worker-0"),
        (
            Mitigate(batches={"worker-0": 96}),
            "must name each worker .* got worker-0; give quick-start-w",
        ),
        (Mitigate(accumulate={"worker-0": 2}), "accumulate must come with batches, got it alone"),
        (
            Mitigate(batches={"worker-0": 96, "worker-1": 8}, accumulate={"ps-0": 2}),
            "accumulate must name workers",
        ),
        (
            Mitigate(batches={"worker-0": 96, "worker-1": 8}, accumulate={"worker-0": 2}, backup=1),
            "got batches and accumulate and backup; give exactly one",
        ),
        (Mitigate(backup=-1), "n must be"),
        (Mitigate(cores={}), "cores must name one node .* got none"),
        (Mitigate(memory={"ps-0": 32}), "memory_mib"),
        (Mitigate(cores={"ps-0": 1.0, "worker-0": 1.0}), "got ps-0, worker-0; one node at a time"),
        (Mitigate(rates={"worker-0": 0.0}), "factor of worker-0"),
        (Mitigate(rates={"worker-0": 1001.0}), "at most 1,000, got 1,001.0 of 'worker-0'"),
        (Mitigate(batches={"worker-0": 10**30, "worker-1": 8}), "at most 10,000,000"),
        (Mitigate(cores={"ps-0": 1.0}, memory={"worker-0": 1024}), "same node .* ps-0 and worker-0"),
        (Mitigate(cores={"ps-0": 1.0}, restart="ps-0"), "got restart and cores; give exactly one"),
    ],
)
def test_what_names_no_action_of_the_job_is_told_with_what_would(request_, error):
    with pytest.raises(InvalidValueError, match=error):
        request_.chosen(JOB)


def test_a_node_that_is_gone_cannot_be_named():
    gone = replace(JOB, nodes=tuple(replace(node, phase=NodePhase.GONE) for node in JOB.nodes))
    with pytest.raises(InvalidValueError, match="there are: none now"):
        Mitigate(restart="worker-0").chosen(gone)
