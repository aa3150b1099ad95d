"""The assumed truth of a job that a user submits to a simulated cluster.

Such a job was never measured: its speed and memory are assumed from its model and data by the round numbers
below, in the order of magnitude of this product's own runtime on one core. They give curves of a plausible
shape to learn on, not a forecast of a real job; a job with a measured truth is submitted with
`SimulatedCluster.add` instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.driver.job_start import FLOAT_BYTES, traits_of
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.simulator import MemoryGrowth, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.capacity import NodeShape

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
    from dlrover_nb.core.structs.views.schema import DataSchema

MACHINE = NodeShape(32.0, 128 * 1024)
N_MACHINE = 100
SPEED = 60.0  # virtual seconds per real second
REPORT_S = 15.0

FLOP_PER_S = 5e10  # of one core
FLOP_PER_WEIGHT = 6  # forward, and backward for weights and inputs
SAMPLE_S = 5e-6  # of a core, to read and encode a sample
UPDATE_S = 1e-9  # of a PS core, for one float of a pushed row
LOOKUP_S = 5e-10  # for one float of a pulled row
LINK_BYTES_PER_S = 1.25e9
CONSTANT_S = 1e-3
CONTENTION_S = 5e-5
PROCESS_MIB = 300.0

SETTINGS = ControllerSettings(
    window_s=2 * REPORT_S,
    max_window_s=10 * REPORT_S,
    settle_s=2 * REPORT_S,
    refit_s=300.0,
    manual_publish_s=3600.0,  # many jobs share one process
    cool_down_s=120.0,
    memory_check_s=300.0,
    planner=PlannerSettings(experiment_s=12 * REPORT_S),
)


def simulate(
    *, machines: int | None = None, speed: float | None = None, seed: int = 0, at_s: float = 0.0
) -> SimulatedCluster:
    """Start a simulated cluster.

    Parameters
    ----------
    machines
        How many, of 32 cores and 128 GiB each; 100 by default.
    speed
        Virtual seconds in a real one; 60 by default.
    seed
        Seed of all randomness.
    at_s
        The virtual time at the start.

    Raises
    ------
    InvalidValueError
        When a number is out of range.
    """
    count = N_MACHINE if machines is None else machines
    _check.at_least("number of machines", count, 1)
    world = SimulatedWorld(
        [NodeShape(MACHINE.cpu, MACHINE.memory_mib, count)],
        rng=np.random.default_rng(seed),
        settings=WorldSettings(report_s=REPORT_S),
        at_s=at_s,
    )
    return SimulatedCluster(world, SETTINGS, assume(take_data), speed=SPEED if speed is None else speed)


def assume(
    read: Callable[[DataSpec, ModelSpec], tuple[FeatureSpec, DataSchema]],
) -> Callable[[JobSpec], SimulatedJob]:
    """Return the function that assumes a job's truth from its specification; `read` looks at the data."""

    def assumed_of(spec: JobSpec) -> SimulatedJob:
        features, schema = read(spec.data, spec.model)
        return replace(assumed(spec, features), schema=schema)

    return assumed_of


def assumed(spec: JobSpec, features: FeatureSpec) -> SimulatedJob:
    """Assume a truth for a job."""
    traits = traits_of(spec, features)
    n_weight = traits.dense_bytes / FLOAT_BYTES
    truth = TermsTruth(
        grad_s=SAMPLE_S + FLOP_PER_WEIGHT * n_weight / FLOP_PER_S,
        update_s=UPDATE_S * spec.batch_size * traits.embedding_dim,
        sync_s=traits.dense_bytes / LINK_BYTES_PER_S,
        lookup_s=LOOKUP_S * traits.embedding_dim,
        constant_s=CONSTANT_S,
        contention_s=CONTENTION_S,
    )
    table_mib = 2 * FLOAT_BYTES * traits.n_table_row * spec.model.row_width / 2**20  # rows and their slots
    return SimulatedJob(
        spec=spec,
        truth=truth,
        n_sample=traits.n_sample,
        dense_bytes=traits.dense_bytes,
        embedding_dim=traits.embedding_dim,
        worker_memory=MemoryGrowth(PROCESS_MIB + 20 * traits.dense_bytes / 2**20),
        ps_memory=MemoryGrowth(PROCESS_MIB, table_mib, n_scale=max(traits.n_sample, 1)),
        traits=traits,
    )
