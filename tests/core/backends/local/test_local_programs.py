"""External jobs as processes of this machine, through a real master of theirs."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace

import psutil
import pytest
from waiting import until

from dlrover_nb.core.backends.local.record import read_master
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.external import Counting, ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job import JobPhase, JobSpec, Mode
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan

# Meets the others of torch.distributed, and reduces until it is told to end.
TORCH = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
from dlrover_nb.report import step
dist.init_process_group("gloo")
print(f"of {dist.get_world_size()} in {os.getcwd()} by {os.environ['OWN']}", flush=True)
end = pathlib.Path(sys.argv[1])
done = torch.zeros(1)
while not done:
    done[0] = float(end.exists())
    dist.all_reduce(done)
    step(samples=8, loss=0.5)
    time.sleep(0.02)
dist.destroy_process_group()
"""
TENSORFLOW = """
import json, os, signal, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
own = config["cluster"][task["type"]][task["index"]]
server = socket.create_server(("", int(own.rpartition(":")[2])))
def save(*_):
    print("saved before the end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print(json.dumps({"own": own, "cluster": config["cluster"]}), flush=True)
for n in range(100000):
    print(f"step {n}", flush=True)
    time.sleep(0.02)
"""
PYTHON = (sys.executable, "-c")


@pytest.fixture(scope="module")
def local(own_home):
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


@pytest.fixture
def submitted(local):
    handles = []

    def submit(name, foreign, *, n_worker=2, **changes):
        plan = ResourcePlan(RolePlan(n_worker, 0.5, 512), RolePlan(1, 0.25, 512))
        spec = JobSpec(name, plan=plan, foreign=foreign, batch_size=8, mode=Mode.MANUAL, **changes)
        handles.append(local.submit(spec))
        return handles[-1]

    yield submit
    for handle in handles:
        local.delete(handle.name, force=True)


def torch_job(tmp_path):
    role = ExternalRole((*PYTHON, TORCH, str(tmp_path / "end")), env=("OWN=ada",))
    return ExternalSpec(role, 1_000_000, framework=Framework.TORCH, counting=Counting.JOB)


def trains(handle, n_worker):
    def reached():
        now = handle.snapshot()
        assert not now.phase.is_final, (now.message, texts(handle))
        workers = [node for node in now.nodes if str(node.role) == "worker"]
        return now.running is not None and len(workers) == n_worker and now

    return until(reached, what=f"{n_worker} workers that train")


def process_of(handle, node):
    """Return the shell of a node, whose id its file holds."""
    left = json.loads((handle.link.folder / "nodes" / f"{node}.pid").read_bytes())
    return psutil.Process(left["pid"])


def runs(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def program_of(handle, node):
    """Return a node's program, among what its shell runs."""
    (program,) = [
        each for each in process_of(handle, node).children(recursive=True) if "python" in each.name()
    ]
    return program


def texts(handle, node=None):
    return [line.text for line in handle.logs(node, n_line=1000)]


def test_a_torch_job_outlives_a_killed_worker_and_a_killed_master_and_ends(submitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handle = submitted("torch", torch_job(tmp_path))
    trains(handle, 2)
    until(lambda: f"of 2 in {tmp_path} by ada" in texts(handle, "worker-0"), what="the program's words")
    program_of(handle, "worker-1").kill()
    until(lambda: "worker-2" in [node.id for node in handle.snapshot().nodes], what="another worker")
    before = trains(handle, 2)
    shells = {node.id: process_of(handle, node.id).pid for node in before.nodes}

    master = read_master(handle.link.folder)
    os.kill(master.pid, signal.SIGKILL)
    until(lambda: not master.is_alive, what="the end of the master")
    now = trains(handle, 2)
    assert {node.id: process_of(handle, node.id).pid for node in now.nodes} == shells, "programs go on"
    assert now.train.n_sample_done >= before.train.n_sample_done
    until(lambda: handle.snapshot().train.n_sample_done > now.train.n_sample_done, what="new reports")
    lines = texts(handle, "worker-0")
    assert lines.count(f"of 2 in {tmp_path} by ada") == 2, "each line once: before and after the rendezvous"

    (tmp_path / "end").touch()
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    assert handle.snapshot().phase is JobPhase.SUCCEEDED
    until(lambda: not any(runs(pid) for pid in shells.values()), what="the end of the programs")


def test_tensorflow_programs_get_ports_of_their_own_and_time_to_save(submitted):
    role = ExternalRole((*PYTHON, TENSORFLOW))
    handle = submitted("tf", ExternalSpec(role, 10_000, ps=role, step_log=r"step (?P<step>\d+)"))
    until(lambda: handle.snapshot().train.n_sample_done > 100, what="steps in the log")
    told = [json.loads(text) for text in texts(handle) if text.startswith("{")]
    assert len({each["own"] for each in told}) == 3
    assert all(each["cluster"] == told[0]["cluster"] for each in told)

    handle.scale(ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.25, 512)))
    trains(handle, 1)
    until(lambda: "saved before the end" in texts(handle, "worker-1"), what="the last line")
    handle.stop(why="enough")
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    assert "saved before the end" in texts(handle, "worker-0")


def test_a_program_that_fails_ends_its_job_with_the_error(submitted):
    role = ExternalRole((*PYTHON, "raise ValueError('no such column')"))
    spec = ExternalSpec(role, 10_000, framework=Framework.TORCH)
    handle = submitted("broken", spec, n_worker=1, max_restarts_per_error=0)
    now = until(lambda: (now := handle.snapshot()).phase.is_final and now, what="the end")
    assert now.phase is JobPhase.FAILED
    assert "no such column" in now.message


def test_what_this_machine_cannot_run_is_refused(local, tmp_path):
    good = JobSpec("refused", foreign=torch_job(tmp_path))
    missing = replace(good.foreign, worker=ExternalRole(("no-such-program", "x")))
    with pytest.raises(InvalidValueError, match=r"no-such-program.*install it"):
        local.submit(replace(good, foreign=missing))
    with pytest.raises(InvalidValueError, match="leave model and data out"):
        local.submit(good, model=object())
    with pytest.raises(InvalidValueError, match=r"set plan.ps.count: 1"):
        local.submit(replace(good, plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(2, 0.5, 512))))
