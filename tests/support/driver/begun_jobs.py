"""Fixtures of folders whose tests begin jobs: of real processes, or among played nodes in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from support.driver.driver_world import DriverWorld
from support.driver.real_job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec


@pytest.fixture(scope="module")
def features() -> FeatureSpec:
    return make_features(DataSpec(), ModelSpec())


@pytest.fixture
def start(tmp_path: Path, features: FeatureSpec) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(rows: FeatureSpec = features, **changes: object) -> Job:
        job = Job(tmp_path, rows, **changes)
        jobs.append(job)
        job.driver.start()
        return job

    yield begin
    for job in jobs:
        job.close()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., DriverWorld]]:
    """Begin a job among played nodes, in virtual time."""
    worlds = []

    def begin(rows: FeatureSpec | None = None, **changes: object) -> DriverWorld:
        world = DriverWorld(tmp_path, rows, **changes)
        worlds.append(world)
        world.start()
        return world

    yield begin
    for world in worlds:
        world.close()
