"""Masters of the local head that are asked over loopback: which count, and when Ray is asked instead.

The test's own process is the master, and its session that of the head.
"""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from support.jobs.builders import snapshot
from support.waiting import until

from dlrover_nb.core.backends.local.record import MASTER, read_master, write_master
from dlrover_nb.core.backends.ray.head import HeadRecord
from dlrover_nb.core.backends.ray.local_ray import LocalRay
from dlrover_nb.core.backends.ray.master import answer_near
from dlrover_nb.core.backends.ray.near_masters import (
    HEAD,
    NearLink,
    address_of,
    addresses,
    runs_of,
    write_address,
    write_head,
)
from dlrover_nb.core.client.link.calls import AskSummary, Decide, Done
from dlrover_nb.core.connect import connect
from dlrover_nb.core.driver.past.finished_job import FinishedJob
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.rundir.locate import new_run_folder
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict

SLEEPER = "import time; time.sleep(3600)"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    for kind in ("STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


@pytest.fixture
def head():
    """A head whose session is that of this process."""
    return HeadRecord("127.0.0.1:1", os.getsid(0), 1.0, "/nowhere", 2.0)


@pytest.fixture
def run(head):
    """The folder of a run on it that has begun and ended; its master is this process."""
    job = snapshot()
    folder = new_run_folder(job.spec.name)
    write_head(folder, head)
    answer_near(FinishedJob(job), folder)
    return folder


@pytest.fixture
def process():
    """Start a process with a name, in a session of its own or in ours."""
    started = []

    def start(title, *, is_ours=True):
        command = ["bash", "-c", 'exec -a "$0" "$@"', title, sys.executable, "-c", SLEEPER]
        started.append(subprocess.Popen(command, start_new_session=not is_ours))
        pid = started[-1].pid
        until(lambda: psutil.Process(pid).cmdline()[:1] == [title], what="the process")
        return pid

    yield start
    for each in started:
        each.kill()
        each.wait()


def refused(call):
    raise AssertionError(f"Ray is asked: {call}")


def test_a_master_of_the_head_that_runs_is_asked_and_listed_without_ray(head, run, error_words):
    name = snapshot().spec.name
    cluster = LocalRay(head)
    assert cluster.job(name).snapshot() == snapshot()
    assert [summary.name for summary in cluster.live_jobs()] == [name]
    assert name in [summary.name for summary in cluster.jobs()]
    with error_words(NotFoundError):
        cluster.job("nope")


@pytest.mark.parametrize("session", ["another", "none"])
def test_an_address_of_a_process_that_the_head_has_not_does_not_count(head, run, process, session):
    """Its id may be another program's by now, and the token must not go there."""
    pid = process("other", is_ours=False)
    record = read_master(run)
    if session == "another":
        write_master(run, replace(record, pid=pid))  # not when it was started, too
    else:
        head = replace(head, session=pid)
    assert address_of(run, head) is None


def test_an_address_is_of_the_process_that_wrote_it(head, run):
    assert address_of(run, head) == read_master(run)
    write_master(run, replace(read_master(run), started_at_s=1.0))
    assert address_of(run, head) is None


@pytest.mark.parametrize("name", [HEAD, MASTER])
@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"\xff" * 200])
def test_a_damaged_file_names_no_master(head, run, name, content):
    (run / name).write_bytes(content)
    assert name == MASTER or runs_of(head) == {}
    assert not addresses(runs_of(head), head)


def test_a_run_on_an_earlier_head_is_none_of_this_one(head, run):
    assert list(runs_of(head).values()) == [run]
    assert runs_of(replace(head, started_at_s=2.0)) == {}


def test_jobs_are_listed_without_ray_only_where_each_has_an_address(head, run):
    assert addresses(runs_of(head), head)
    new = new_run_folder("starting")
    write_head(new, head)
    assert addresses(runs_of(head), head) is None
    write_address(new, 1, "token")
    assert addresses(runs_of(head), head).keys() == {"starting", snapshot().spec.name}


@pytest.mark.parametrize("title", ["ray::RayMaster", "ray::RayMaster.answer", "ray::RayProgramsMaster"])
def test_a_master_without_an_address_as_of_another_release_is_seen_by_its_name(head, run, process, title):
    process("ray::IDLE")
    process(title, is_ours=False)  # of another head
    assert addresses(runs_of(head), head)
    process(title)
    assert addresses(runs_of(head), head) is None


def test_a_call_goes_by_ray_while_its_master_has_no_address(head, run):
    (run / MASTER).unlink()
    asked = []
    link = NearLink("job", run, head, lambda call: asked.append(call) or Done())
    assert link.send(AskSummary()) == Done()
    assert asked == [AskSummary()]


def test_a_call_that_may_have_been_carried_out_is_not_sent_again(head, run):
    """The port is closed: a master that was killed while it answered."""
    write_master(run, replace(read_master(run), port=1))
    asked = []
    link = NearLink("job", run, head, lambda call: asked.append(call) or Done())
    with pytest.raises(BackendError, match="did not answer"):
        link.send(Decide(Decision(Verdict.REJECT, "ada", 0.0)))
    assert asked == []
    assert link.send(AskSummary()) == Done()
    assert asked == [AskSummary()]


def test_a_master_with_another_token_refuses(head, run):
    write_master(run, replace(read_master(run), access="guessed"))
    with pytest.raises(BackendError, match="refused a call"):
        NearLink("job", run, head, refused).summary()


def test_a_call_of_a_shell_loads_no_ray_for_a_job_of_the_local_head(run, head):
    code = (
        "import sys; from dlrover_nb.core.backends.ray.head import HeadRecord\n"
        "from dlrover_nb.core.backends.ray.local_ray import LocalRay\n"
        f"cluster = LocalRay(HeadRecord('127.0.0.1:1', {head.session}, 1.0, '/nowhere', 2.0))\n"
        "print(cluster.jobs()[0].name, cluster.live_jobs()[0].name, 'ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [snapshot().spec.name] * 2 + ["False"]


def test_without_a_head_there_are_no_jobs_and_none_is_started(error_words):
    with error_words(NotFoundError):
        connect("ray", start=False)
