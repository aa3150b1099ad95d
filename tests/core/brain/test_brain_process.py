"""The brain as a process beside a real job: what it keeps, who follows a killed one, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.conformance.cluster import PLAN
from support.waiting import until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.history.stores.loads import LoadStore
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.backends.local.cluster import LocalCluster

SPEC = JobSpec("fed", plan=PLAN, mode=Mode.MANUAL, n_epoch=1000)


@pytest.fixture
def local(own_home: Path) -> Iterator[LocalCluster]:
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


@pytest.fixture
def brains(own_home: Path, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two brains, the first of which leads."""
    env = os.environ | {"DLROVER_NB_ADDRESS": "local"}
    line = ["brain", "--interval", "0.5", "--name", "here", "--history", url(tmp_path)]
    begun: list[subprocess.Popen[bytes]] = []
    for n in range(2):
        with (tmp_path / f"brain-{n}.log").open("wb") as log:
            command = [sys.executable, "-m", "dlrover_nb.cli", *line]
            begun.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        until(lambda: holder(tmp_path), what="a brain that leads")
    yield begun
    for each in begun:
        each.kill()
        each.wait()


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'shared.db'}"


def holder(folder: Path) -> str:
    lease = LeaseStore(url(folder)).find("brain of here")
    return lease.holder if lease is not None and lease.left_s > 0 else ""


@pytest.mark.release
def test_a_killed_brain_is_followed_by_another_and_the_job_goes_on(
    local: LocalCluster, brains: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    job = local.submit(replace(SPEC))
    rounds = RoundStore(url(tmp_path))
    until(
        lambda: any("a user decides" in why for each in rounds.newest("here", 9) for _, why in each.apart),
        what="a round that knows the job",
    )
    place = local.load().place
    until(lambda: LoadStore(url(tmp_path)).between(place, 0.0, 1e12), what="the load of this machine")
    n_done = job.snapshot().train.n_sample_done
    leads = until(lambda: holder(tmp_path), what="a brain that leads")
    first, second = brains if str(brains[0].pid) in leads else reversed(brains)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: str(second.pid) in rounds.newest("here")[0].by, what="a round of the other one")
    until(lambda: job.snapshot().train.n_sample_done > n_done, what="training")
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0
    assert holder(tmp_path) == "", "the lease is free at once"
    assert b"jobs go on by themselves" in (tmp_path / f"brain-{brains.index(second)}.log").read_bytes()
