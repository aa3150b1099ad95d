"""Jobs of local processes: the contracts of link and cluster, and what only a detached master does."""

from __future__ import annotations

import http.client
import os
import re
import signal
import stat
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from support.conformance.cluster import PLAN, ClusterConformance
from support.conformance.link import LinkConformance
from support.driver.kill_master import kill_for_good
from support.waiting import LIMIT_S, is_gone, until

from dlrover_nb.core.backends.local import link
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.backends.local.link import LocalLink
from dlrover_nb.core.backends.local.record import (
    MASTER,
    PROGRESS,
    SUBMISSION,
    SUPERVISOR,
    read_end,
    read_master,
    read_supervisor,
)
from dlrover_nb.core.basics.waits import listening
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.connect import connect
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, CALL_PATH
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.journal import SEGMENT_BYTES, segments
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

SPEC = JobSpec("quick", plan=PLAN, mode=Mode.MANUAL, n_epoch=1000, heartbeat_timeout_s=LIMIT_S)
ATTACH = """
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.connect import connect
print(connect("local").job("quick").snapshot().phase)
"""


@pytest.fixture(scope="module")
def local(own_home):
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


def trains(handle):
    return until(lambda: handle.snapshot().train.n_sample_done, what="training")


def node_pids(handle):
    return {node.id: node.pid for node in handle.snapshot().nodes}


@pytest.mark.more
class TestLocalCluster(ClusterConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, local):
        return local


@pytest.mark.more
class TestLocalLink(LinkConformance):
    name = "link-contract"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, local):
        handle = local.submit(replace(SPEC, name=cls.name))
        trains(handle)
        yield handle.link
        local.delete(cls.name, force=True)


@pytest.fixture(scope="module")
def running(local):
    handle = local.submit(SPEC)
    trains(handle)
    yield handle
    local.delete("quick", force=True)


@pytest.mark.more
def test_another_process_finds_a_job_and_its_end_leaves_the_job_alone(running):
    found = subprocess.run([sys.executable, "-c", ATTACH], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "training"
    assert running.snapshot().phase is JobPhase.TRAINING
    master = psutil.Process(read_master(running.link.folder).pid)
    assert os.getsid(master.pid) == master.pid  # no terminal's end reaches it


@pytest.mark.more
def test_who_lacks_the_token_learns_nothing_and_only_the_owner_reads_it(running):
    folder = running.link.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in (MASTER, SUBMISSION, SUPERVISOR):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    record = read_master(folder)
    assert record.access not in repr(record)
    listening = [c.laddr for c in psutil.Process(record.pid).net_connections("inet") if c.status == "LISTEN"]
    assert [address.ip for address in listening] == ["127.0.0.1"]
    for token in ("", record.access[:-1]):
        connection = http.client.HTTPConnection("127.0.0.1", record.port, timeout=30)
        connection.request("POST", CALL_PATH, b"", {ACCESS_HEADER: token})
        assert connection.getresponse().status == http.HTTPStatus.UNAUTHORIZED
        connection.close()


@pytest.mark.more
def test_a_master_killed_with_its_supervisor_is_started_by_the_next_call_and_keeps_the_nodes(
    running, local, words
):
    nodes = node_pids(running)
    killed = kill_for_good(running.link.folder)
    assert [summary.live for summary in local.jobs() if summary.name == "quick"] == [False]
    assert running.snapshot().phase is JobPhase.TRAINING
    assert read_master(running.link.folder).pid != killed.pid
    assert read_supervisor(running.link.folder).is_alive
    assert running.snapshot().restart.how_ended == words
    assert node_pids(running) == nodes


@pytest.mark.release
def test_who_waits_for_a_master_that_reads_a_long_journal_is_told_how_far_it_is(running, words):
    folder, nodes, told = running.link.folder, node_pids(running), []
    kill_for_good(folder)
    newest = segments(folder)[-1]
    last = [line for line in newest.events.read_bytes().splitlines() if line.startswith(b'["Ticked')][-1]
    with newest.events.open("ab") as journal:
        journal.write(b"\n" + (last + b"\n") * (2 * SEGMENT_BYTES // len(last)))
    with listening(told.append):
        assert running.snapshot().phase is JobPhase.TRAINING
    (form,) = {re.sub(r"\d+", "N", text) for text in told}
    assert form == words
    assert node_pids(running) == nodes
    assert not (folder / PROGRESS).exists()
    until(lambda: segments(folder)[-1].number == newest.number + 1, what="another segment")


def test_other_jobs_see_what_a_job_holds(running, tmp_path):
    beside = LocalBackend(running.link.folder.parent / "another" / "run")
    beside_it = LocalBackend(running.link.folder.with_name("another"))
    held = beside_it.capacity().total_cpu - beside_it.room().total_cpu
    assert held == pytest.approx(PLAN.total_cpu)
    assert beside.room() == beside.capacity()  # of another user's folder nothing is known
    assert LocalBackend(running.link.folder).room() == beside.capacity()


@pytest.mark.release
def test_an_ended_job_answers_from_its_folder_and_its_name_is_free_again(local):
    handle = local.submit(replace(SPEC, name="again"))
    until(lambda: handle.series().node.get("at_s"), what="first reports")
    handle.stop(why="enough")
    folder = handle.link.folder
    until(lambda: read_end(folder), what="the last snapshot")
    os.kill(read_master(folder).pid, signal.SIGTERM)
    until(lambda: not read_master(folder).is_alive, what="the master's end")
    assert handle.snapshot().message.startswith("stopped by")
    again = local.job("again")
    assert again.snapshot().phase is JobPhase.STOPPED
    assert again.series().node["at_s"], "the charts of an ended job"
    assert not again.series(again.series().cursor).node, "a view that followed it has finer rows"
    second = local.submit(replace(SPEC, name="again"))
    assert second.link.folder != folder
    assert "2 run folders" in local.delete("again", force=True)
    with pytest.raises(NotFoundError, match="was deleted"):
        LocalLink("again", folder).snapshot()


def test_cpus_must_be_a_number_that_makes_sense(error_words):
    assert connect("local", cpus=1.5).capacity().total_cpu == 1.5
    for cpus in (0.0, -1.0, float("nan")):
        with error_words(InvalidValueError):
            connect("local", cpus=cpus)


@pytest.mark.more
def test_a_job_whose_master_never_began_leaves_its_name_free(local, monkeypatch):
    monkeypatch.setattr(link, "MODULE", "dlrover_nb.no_master")  # as where an update is half installed
    with pytest.raises(BackendError, match="ended before it began"):
        local.submit(replace(SPEC, name="stillborn"))
    assert "stillborn" not in {summary.name for summary in local.jobs()}
    assert not list(jobs_folder().glob("stillborn-*"))


@pytest.mark.more
def test_a_master_that_could_not_even_write_a_log_says_where_to_look(local, monkeypatch):
    monkeypatch.setattr(link, "MODULE", "stat")  # it ends with an empty log, as on a full disk
    with pytest.raises(BackendError, match="MiB are free there"):
        local.submit(replace(SPEC, name="silent"))


@pytest.mark.release
def test_a_job_that_cannot_be_continued_is_deleted_by_force_with_its_nodes(local):
    handle = local.submit(replace(SPEC, name="broken"))
    trains(handle)
    folder, pids = handle.link.folder, node_pids(handle)
    kill_for_good(folder)
    for name in (JOB, SUBMISSION):
        (folder / name).write_text("a disk lost this")
    with pytest.raises(BackendError, match="delete broken --force"):
        local.delete("broken")
    assert "1 run folder" in local.delete("broken", force=True)
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids.values()), what="the end of its nodes")
    assert not folder.exists()


@pytest.mark.more
def test_a_job_whose_master_does_not_answer_counts_as_running_and_is_ended_by_force(local, monkeypatch):
    handle = local.submit(replace(SPEC, name="busy"))
    nodes = until(lambda: (pids := node_pids(handle).values()) and all(pids) and pids, what="its nodes")
    master = psutil.Process(read_master(handle.link.folder).pid)
    master.suspend()
    try:
        with pytest.raises(InvalidValueError, match=r"still run here .*busy"):
            local.shutdown()
    finally:
        master.resume()

    def silent(*_, **__):
        raise BackendError("no answer")

    monkeypatch.setattr(JobHandle, "stop", silent)
    local.shutdown(force=True)
    assert is_gone(master.pid)
    until(lambda: all(map(is_gone, nodes)), what="the end of its nodes")
