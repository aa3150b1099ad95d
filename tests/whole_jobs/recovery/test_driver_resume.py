"""A master is killed with -9, and another one goes on with its nodes, its ids and its journal."""

from __future__ import annotations

import os
import signal
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import DriverWorld, PlayedBackend
from support.driver.driver_world import succeeded as played_to_its_end
from support.driver.killed_master import Comeback
from support.driver.real_job import plan, succeeded
from support.waiting import is_gone, until

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.driver.own.transport import MasterSocket
from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.rundir.job_file import JOB, WRITE_AHEAD_LOG, JobFile, listen_again, read_job
from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, run_name
from dlrover_nb.core.runtime.exchange.sockets import new_keys
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.views.events import PhaseChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


@pytest.fixture
def begin(tmp_path: Path, features: FeatureSpec) -> Iterator[Callable[..., Comeback]]:
    jobs = []

    def start(listen: str = "ipc", **changes: object) -> Comeback:
        jobs.append(Comeback(tmp_path, features, listen, **changes))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


def pids(now: JobSnapshot) -> dict[str, int | None]:
    return {node.id: node.pid for node in now.nodes}


def lives(pid: int) -> bool:
    return not is_gone(pid)


@pytest.mark.more
@pytest.mark.parametrize("listen", ["ipc"])
def test_the_next_master_takes_over_living_nodes_and_no_shard_is_lost(
    begin: Callable[..., Comeback], listen: str
) -> None:
    job = begin(listen)
    before = job.until(lambda now: now.running and now.train.n_sample_done > 15_000)
    job.kill_master()
    assert all(map(lives, pids(before).values()))
    job.come_back()
    after = job.until(lambda now: now.train.n_sample_done > before.train.n_sample_done + 5_000)
    assert pids(after) == pids(before)
    end = succeeded(job)  # type: ignore[arg-type]
    assert any("restarted and takes over 2 nodes" in line for line in end.story)
    assert end.started_at_s == before.started_at_s
    assert not any(map(lives, pids(before).values()))
    assert not list(SHM.glob(f"{run_name(job.spec.name, job.folder)}*"))
    events = list(read_events(job.folder))
    assert sum(type(event).__name__ == "JobSubmitted" for event in events) == 1
    store = HistoryStore(job.history)
    (run,) = store.jobs()
    store.close()
    assert run.phase is JobPhase.SUCCEEDED


def checkpoints(job: DriverWorld) -> set[str]:
    return {path.parent.name for path in job.folder.glob("checkpoints/*/manifest.json")}


@pytest.mark.parametrize("step_s", [-3600.0, 86_400.0])
def test_the_next_master_goes_on_in_the_jobs_time_wherever_its_clock_was_set(
    play: Callable[..., DriverWorld], step_s: float
) -> None:
    job = play(checkpoint_every_s=1.0, n_epoch=3)
    before = job.until(lambda now: now.running and checkpoints(job))
    job.crash()
    known = checkpoints(job)
    job.machine.set_by_s = step_s
    job.come_back()
    after = job.until(lambda now: checkpoints(job) - known and now.samples_per_s > 0)
    assert pids(after) == pids(before)
    end = played_to_its_end(job)
    assert end.ended_at_s == job.at_s
    assert not any("was lost" in line for line in end.story), end.story
    times = [event.at_s for event in read_events(job.folder)]
    assert times == sorted(times)


def test_nodes_that_died_with_the_master_are_noticed_and_replaced(play: Callable[..., DriverWorld]) -> None:
    job = play(plan=plan(2, 1), checkpoint_every_s=1.0, n_epoch=3)
    job.until(lambda now: now.running and checkpoints(job))
    job.write("ps-0", "ps-0 serves no more\n")
    job.crash()
    for name in ("worker-0", "ps-0"):
        job.nodes[name].is_alive = False
    job.come_back()
    end = played_to_its_end(job, exactly_once=False)
    for name in ("worker-0", "ps-0"):
        assert any(f"{name} was lost" in line for line in end.story), end.story
    assert [line.text for line in job.driver.logs("ps-0", 5)] == ["ps-0 serves no more"]


def test_what_a_master_was_told_and_could_not_write_down_is_told_to_the_next_one(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(plan=plan(2, 2, ps_cpu=0.2), n_epoch=3)
    for n_done in range(100, 1000, 150):
        job.until(lambda now, n_done=n_done: now.running and now.train.n_sample_done > n_done)
        job.crash()
        job.come_back()
    end = played_to_its_end(job)
    assert not any("was lost" in line for line in end.story), end.story


def test_a_decision_that_a_killed_master_had_only_noted_is_carried_out_by_the_next_one(
    play: Callable[..., DriverWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = play(n_epoch=3)
    job.until(lambda now: now.running and now.train.n_sample_done)
    with monkeypatch.context() as patch:
        patch.setattr(JobMaster, "set_target", lambda *_: ())
        job.scale(plan(2, 1))
        job.crash()
    assert len(job.nodes) == 2
    job.come_back()
    job.until(lambda now: now.running == plan(2, 1))
    played_to_its_end(job)


@pytest.mark.release
def test_a_ps_that_got_sigterm_without_a_master_is_replaced_by_the_next_one(
    begin: Callable[..., Comeback],
) -> None:
    job = begin(plan=plan(1, 2, ps_cpu=0.2))
    before = job.until(lambda now: now.running and now.train.n_sample_done > 10_000)
    job.kill_master()
    pid = pids(before)["ps-0"]
    os.kill(pid or 0, signal.SIGTERM)
    job.come_back()
    job.until(lambda now: now.running and pids(now).keys() == {"worker-0", "ps-1", "ps-2"})
    until(lambda: is_gone(pid or 0), what="its end")
    end = succeeded(job)  # type: ignore[arg-type]
    assert any("ps-0 is being evicted; its parameters move to ps-2" in line for line in end.story), end.story
    assert not any("was lost" in line or "was loaded from" in line for line in end.story), end.story


def test_a_second_master_of_one_folder_is_refused(play: Callable[..., DriverWorld]) -> None:
    job = play()
    job.until(lambda now: now.running)
    with pytest.raises(BackendError, match="has a running master"):
        job.come_back()


def test_a_job_that_had_ended_is_told_as_it_was(play: Callable[..., DriverWorld]) -> None:
    job = play()
    job.until(lambda now: now.running)
    job.write("ps-0", "ps-0 serves its part\n")
    played_to_its_end(job)
    n_event = len(list(read_events(job.folder)))
    job.come_back()
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED
    assert end.evaluation is not None
    assert any("ps-0 serves" in line.text for line in job.driver.logs("ps-0", 100))
    news = list(read_events(job.folder))[n_event:]
    assert {event.phase for event in news if isinstance(event, PhaseChanged)} <= {JobPhase.SUCCEEDED}


def test_the_files_of_a_master_are_its_owners_alone_and_a_folder_without_them_is_refused(
    play: Callable[..., DriverWorld], tmp_path: Path
) -> None:
    job = play()
    job.until(lambda now: now.running)
    assert stat.S_IMODE((job.folder / JOB).stat().st_mode) == 0o600
    assert stat.S_IMODE((job.folder / WRITE_AHEAD_LOG).stat().st_mode) == 0o600
    with pytest.raises(CheckpointError, match="not a run folder of a job"):
        own_job.resume(
            own_job.RunSetup(LocalBackend(tmp_path), tmp_path, history_url=job.history, clock=SystemClock())
        )


class OnThisAddress(PlayedBackend):
    """Binds a real port, at the address that its master has now."""

    address = "127.0.0.1"

    def listen(self) -> str:
        return f"tcp://{self.address}"


@pytest.mark.release
def test_a_master_that_comes_back_under_another_address_lets_its_nodes_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = DriverWorld(tmp_path, backend=OnThisAddress, bind=MasterSocket)
    before = read_job(job.folder)
    job.driver.close()
    monkeypatch.setattr(OnThisAddress, "address", "127.0.0.2")
    job.resume()
    after = read_job(job.folder)
    job.driver.close()
    assert before.endpoint.startswith("tcp://127.0.0.1:")
    assert after.endpoint.startswith("tcp://127.0.0.2:")
    assert after == replace(before, endpoint=after.endpoint)
    assert job.backend.endpoint == after.endpoint


@pytest.mark.parametrize(
    ("known", "listen", "bound"),
    [
        ("ipc:///run/master", "ipc", "ipc"),
        ("tcp://10.0.0.1:4711", "ipc", "tcp://10.0.0.1:4711"),
        ("tcp://10.0.0.1:4711", "tcp://10.0.0.1", "tcp://10.0.0.1:4711"),
        ("tcp://10.0.0.1:7070", "tcp://10.0.0.1:7070", "tcp://10.0.0.1:7070"),
        ("tcp://10.0.0.1:7070", "tcp://10.0.0.11:7070", "tcp://10.0.0.11:7070"),
        ("tcp://10.0.0.11:4711", "tcp://10.0.0.1", "tcp://10.0.0.1"),
    ],
)
def test_the_endpoint_that_nodes_know_is_bound_wherever_the_host_still_has_it(
    known: str, listen: str, bound: str, features: FeatureSpec
) -> None:
    job = JobFile(JobSpec("again"), features, 0.0, known, "public", "secret")
    assert listen_again(job, listen) == bound


def test_a_job_uses_the_keys_that_its_nodes_have_already(features: FeatureSpec, tmp_path: Path) -> None:
    keys, folder = new_keys(), tmp_path / "run"
    backend = LocalBackend(folder, cpus=3.0)
    driver = own_job.begin(
        JobSpec("keyed", plan=plan()),
        features,
        own_job.RunSetup(
            backend, folder, history_url=f"sqlite:///{tmp_path / 'history.db'}", clock=SystemClock()
        ),
        keys=keys,
    )
    job = read_job(folder)
    driver.close()
    assert (job.public_key, job.secret_key) == (keys.public, keys.secret)


def test_an_entry_that_a_kill_left_unfinished_was_told_to_nobody_and_is_left_out(
    play: Callable[..., DriverWorld],
) -> None:
    job = play()
    job.until(lambda now: now.train.n_sample_done > 100)
    job.crash()
    path = job.folder / WRITE_AHEAD_LOG
    path.write_bytes(path.read_bytes() + path.read_bytes()[-12:])
    job.come_back()
    assert not job.now.damage
    end = played_to_its_end(job)
    assert any("takes over 2 nodes" in line for line in end.story)
