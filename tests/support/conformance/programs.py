"""What external jobs do on every cluster that runs their programs as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.brain.service import Brain, Rhythm
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.structs.decisions.actions import AdjustBatches
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.external import Counting, ExternalRole, ExternalSpec, FixedRole, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Admission, Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from support.jobs.orders import ordered
from support.waiting import LIMIT_S, until

# Meets the others of torch.distributed, and reduces until it is told to end.
TORCH = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
from dlrover_nb.report import step
dist.init_process_group("gloo")
print(f"of {dist.get_world_size()} in {os.getcwd()} by {os.environ['OWN']} {os.environ['USERS']}", flush=True)
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
words = json.dumps({"own": own, "cluster": config["cluster"]})
for n in range(100000):
    if n % 100 == 0:  # a log of the newest lines holds it
        print(words, flush=True)
    print(f"step {n}", flush=True)
    time.sleep(0.02)
"""
# Reports as programs of Kubeflow's TrainJobs do: by three variables, a token in a file, and JSON.
TRAINER = """
import datetime, json, os, ssl, sys, time, urllib.request
assert os.environ["KUBEFLOW_TRAINER_SERVER_URL"].startswith("https://")
url, certificate, token = (os.environ[f"KUBEFLOW_TRAINER_SERVER_{name}"] for name in ("URL", "CA_CERT", "TOKEN"))
context = ssl.create_default_context(cafile=certificate)
def tell(percentage, step):
    status = {
        "lastUpdatedTime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "progressPercentage": percentage,
        "estimatedRemainingSeconds": 9999,
        "metrics": [{"name": "current_step", "value": str(step)}, {"name": "loss", "value": "0.25"}],
    }
    head = {"Authorization": "Bearer " + open(token).read().strip(), "Content-Type": "application/json"}
    data = json.dumps({"trainerStatus": status}).encode()
    request = urllib.request.Request(url, data=data, headers=head, method="POST")
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        assert json.load(answer)["trainerStatus"]["progressPercentage"] == percentage
step = 0
while not os.path.exists(sys.argv[1]):
    step += 1
    tell(min(step, 42), step)
    time.sleep(0.05)
tell(100, step)
"""
# Ends well while nobody sees it, once the file is there; until then it counts.
COUNTING = """
import pathlib, sys, time
end, n = pathlib.Path(sys.argv[1]), 0
while not end.exists():
    print(f"line {n}", flush=True)
    n += 1
    time.sleep(0.01)
print("the last line", flush=True)
"""
# Says what it was told, and ends well once the file is there.
TOLD = """
import json, os, pathlib, signal, sys, time
def save(*_):
    print("asked to end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
names = ("TF_CONFIG", "DLROVER_NB_ROLES")
print(json.dumps({name: json.loads(os.environ[name]) for name in names if name in os.environ}), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""
PYTHON = (sys.executable, "-c")


def plan_of(n_worker):
    return ResourcePlan(RolePlan(n_worker, 0.5, 512), RolePlan(1, 0.25, 512))


def torch_job(tmp_path):
    role = ExternalRole((*PYTHON, TORCH, str(tmp_path / "end")), env=("OWN=ada",))
    return ExternalSpec(role, 1_000_000, framework=Framework.TORCH, counting=Counting.JOB)


def snapshot(handle):
    """Return a job's snapshot; None while its master is away."""
    try:
        return handle.snapshot()
    except BackendError:
        return None


def trains(handle, n_worker):
    def reached():
        if (now := snapshot(handle)) is None:
            return None
        assert not now.phase.is_final, (now.message, texts(handle))
        workers = [node for node in now.nodes if str(node.role) == "worker"]
        return now.running is not None and len(workers) == n_worker and now

    return until(reached, what=f"{n_worker} workers that train")


def ended(handle):
    return until(lambda: (now := snapshot(handle)) and now.phase.is_final and now, what="the end")


def supervisor_of(handle, node):
    """Return the process that supervises a node's program; it names the file of its exit code."""
    file = str(Path(handle.snapshot().folder) / "nodes" / f"{node}.code")

    def found():
        for each in psutil.process_iter(["cmdline"]):
            if file in (each.info["cmdline"] or ()):
                return each
        return None

    return until(found, what=f"the program of {node}")


def program_of(handle, node):
    """Return a node's program, among what its supervisor runs."""
    programs = []
    for each in supervisor_of(handle, node).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a tool of the shell
            if "python" in each.name():
                programs.append(each)
    (program,) = programs
    return program


def texts(handle, node=None):
    return [line.text for line in handle.logs(node, n_line=1000)]


class ProgramsConformance:
    """Subclasses give the fixture `cluster`, and say how a master dies."""

    @pytest.fixture
    def submitted(self, cluster):
        handles = []

        def submit(name, foreign, *, n_worker=2, **changes):
            spec = JobSpec(
                name, plan=plan_of(n_worker), foreign=foreign, batch_size=8, mode=Mode.MANUAL, **changes
            )
            handles.append(cluster.submit(spec))
            return handles[-1]

        yield submit
        for handle in handles:
            cluster.delete(handle.name, force=True)

    def kill_master(self, handle):
        """Kill the master of a job, and return when it is gone."""
        raise NotImplementedError

    def test_a_torch_job_outlives_a_killed_worker_and_a_killed_master_and_ends(
        self, submitted, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("USERS", "own")
        handle = submitted("torch", torch_job(tmp_path))
        words = f"of 2 in {tmp_path} by ada own"
        trains(handle, 2)
        until(lambda: words in texts(handle, "worker-0"), what="the program's words")
        program_of(handle, "worker-1").kill()
        until(lambda: "worker-2" in [node.id for node in handle.snapshot().nodes], what="another worker")
        before = trains(handle, 2)
        supervisors = {node.id: supervisor_of(handle, node.id) for node in before.nodes}

        self.kill_master(handle)
        now = trains(handle, 2)
        assert {node.id for node in now.nodes} == supervisors.keys()
        assert all(each.is_running() for each in supervisors.values()), "programs go on"
        known = max(before.train.n_sample_done, now.train.n_sample_done)
        until(lambda: handle.snapshot().train.n_sample_done > known, what="new reports")
        until(lambda: texts(handle, "worker-0").count(words) >= 2, what="its words after the rendezvous")
        assert texts(handle, "worker-0").count(words) == 2, "each line once: before and after the rendezvous"

        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED
        until(lambda: not any(each.is_running() for each in supervisors.values()), what="their end")

    def test_a_job_in_the_queue_starts_its_programs_when_a_brain_admits_it(
        self, cluster, submitted, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("USERS", "own")
        handle = submitted("queued", torch_job(tmp_path), admission=Admission.QUEUE)
        before = handle.snapshot()
        assert (before.phase, before.nodes) == (JobPhase.STARTING, ())
        assert "no brain of this cluster has answered yet" in before.queue.words
        self.kill_master(handle)
        until(lambda: (now := snapshot(handle)) and now.queue is not None, what="another master")
        assert handle.snapshot().nodes == ()
        url = f"sqlite:///{tmp_path / 'history.db'}"
        rhythm, stores = Rhythm(0.2, LIMIT_S), {"leases": LeaseStore(url), "rounds": RoundStore(url)}
        brain = Brain(cluster, "here", settings=BrainSettings(), rhythm=rhythm, by="one", **stores)
        assert brain.renew()
        (queued,) = until(lambda: brain.planned().queue, what="a round with the job")
        assert queued.admitted == plan_of(2), queued
        trains(handle, 2)
        assert any("admitted with" in line for line in handle.snapshot().story)
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED

    @pytest.mark.release
    def test_lines_and_an_end_that_no_master_saw_are_read_by_the_next(self, submitted, tmp_path):
        role = ExternalRole((*PYTHON, COUNTING, str(tmp_path / "end")))
        spec = ExternalSpec(role, 10_000, framework=Framework.TORCH)
        handle = submitted("alone", spec, n_worker=1)
        until(
            lambda: any(text.startswith("line ") and int(text[5:]) >= 100 for text in texts(handle)),
            what="lines",
        )
        program = supervisor_of(handle, "worker-0")
        self.kill_master(handle)
        (tmp_path / "end").touch()
        now = ended(handle)
        assert now.phase is JobPhase.SUCCEEDED, now.message
        until(lambda: not program.is_running(), what="the end of its supervisor")
        lines = [text for text in texts(handle, "worker-0") if "line" in text]
        assert lines[-1] == "the last line"
        numbers = [int(text.split()[1]) for text in lines[:-1]]
        assert [(a, b) for a, b in pairwise(numbers) if b != a + 1] == [], "each line once, in order"

    @pytest.mark.release
    def test_a_program_that_reports_as_to_kubeflow_trainer_is_understood(self, submitted, tmp_path):
        role = ExternalRole((*PYTHON, TRAINER, str(tmp_path / "end")))
        handle = submitted("trainer", ExternalSpec(role, 10_000, framework=Framework.TORCH), n_worker=1)

        def seen(fact):
            now = handle.snapshot()
            assert not now.phase.is_final, (now.message, texts(handle))
            return fact(now) and now

        until(lambda: seen(lambda now: now.samples_per_s > 0), what="a rate, which ends with the progress")
        now = until(lambda: seen(lambda now: now.train.n_sample_done == 4200), what="42 %")
        assert (now.reported.percentage, now.reported.remaining_s, now.loss) == (42, 9999, 0.25)
        assert summarize(now).left_s == pytest.approx(9999, abs=60)
        (tmp_path / "end").touch()
        now = ended(handle)
        assert now.phase is JobPhase.SUCCEEDED, now.message
        assert (now.reported.percentage, now.train.n_sample_done) == (100, 10_000)

    def test_tensorflow_programs_get_ports_of_their_own_and_time_to_save(self, submitted):
        role = ExternalRole((*PYTHON, TENSORFLOW))
        handle = submitted("tf", ExternalSpec(role, 10_000, ps=role, step_log=r"step (?P<step>\d+)"))

        def told():
            nodes = ("worker-0", "worker-1", "ps-0")
            said = {
                node: json.loads(each) for node in nodes for each in texts(handle, node) if each[0] == "{"
            }
            return len(said) == 3 and list(said.values())

        all_told = until(told, what="the words of all")
        assert len({each["own"] for each in all_told}) == 3
        assert all(each["cluster"] == all_told[0]["cluster"] for each in all_told)
        until(lambda: handle.snapshot().train.n_sample_done > 100, what="steps in the log")

        handle.decide(Scale.to(plan_of(1)))
        trains(handle, 1)
        until(lambda: "saved before the end" in texts(handle, "worker-1"), what="the last line")
        handle.stop(why="enough")
        ended(handle)
        assert "saved before the end" in texts(handle, "worker-0")

    @pytest.mark.release
    def test_chief_and_evaluator_run_beside_workers_and_ps_and_the_chief_ends_the_job(
        self, submitted, tmp_path
    ):
        command = (*PYTHON, TOLD, str(tmp_path / "end"))
        forever = ExternalRole((*PYTHON, TOLD, str(tmp_path / "never")))
        small = {"cpu": 0.25, "memory_mib": 256}
        roles = (FixedRole("chief", command, **small), FixedRole("evaluator", forever.command, **small))
        handle = submitted("roles", ExternalSpec(forever, 10_000, ps=forever, roles=roles), n_worker=1)
        nodes = ("chief-0", "worker-0", "ps-0", "evaluator-0")

        def told(node):
            return next((json.loads(text) for text in texts(handle, node) if text[0] == "{"), None)

        until(lambda: all(told(node) for node in nodes), what="the words of all")
        tasks = {node: told(node)["TF_CONFIG"]["task"]["type"] for node in nodes}
        assert tasks == {node: node.partition("-")[0] for node in nodes}
        clusters = [told(node)["TF_CONFIG"]["cluster"] for node in nodes]
        assert all(each == clusters[0] for each in clusters)
        assert sorted(clusters[0]) == ["chief", "ps", "worker"]
        assert len({address for addresses in clusters[0].values() for address in addresses}) == 3
        roles_told = told("evaluator-0")["DLROVER_NB_ROLES"]["cluster"]
        assert roles_told.keys() == {"evaluator", *clusters[0]}
        assert {node.id for node in handle.snapshot().nodes} == set(nodes)

        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED
        until(lambda: "asked to end" in texts(handle, "evaluator-0"), what="the evaluator's last line")

    @pytest.mark.release
    def test_a_job_grows_and_shrinks(self, submitted, tmp_path, monkeypatch):
        monkeypatch.setenv("USERS", "own")
        handle = submitted("grows", torch_job(tmp_path), n_worker=1)
        trains(handle, 1)
        for n_worker in (2, 1):
            handle.decide(Scale.to(plan_of(n_worker)))
            trains(handle, n_worker)
            words = f"of {n_worker} in {Path.cwd()} by ada own"
            until(lambda words=words: words in texts(handle, "worker-0"), what=words)
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED

    @pytest.mark.release
    def test_nodes_of_another_size_take_the_place_of_the_old_ones(self, submitted, tmp_path, monkeypatch):
        monkeypatch.setenv("USERS", "own")
        handle = submitted("sized", torch_job(tmp_path))
        before = {node.id for node in trains(handle, 2).nodes}
        wanted = ResourcePlan(RolePlan(2, 0.75, 640), RolePlan(1, 0.25, 512))
        handle.decide(Scale.to(wanted))
        now = until(lambda: (now := handle.snapshot()).running == wanted and now, what="the other size")
        sizes = {node.id: (node.cpu, node.memory_mib) for node in now.nodes if str(node.role) == "worker"}
        assert list(sizes.values()) == [(0.75, 640)] * 2
        assert {node.id for node in now.nodes} & before == {"ps-0"}, "the store stays"
        for node, size in sizes.items():
            path = Path(now.folder) / "nodes" / f"{node}.json"
            config = from_json(path.read_bytes(), NodeConfig)
            assert (config.cpu, config.memory_mib) == size
        with pytest.raises(InvalidValueError, match=r"1 ps, the store where its workers meet, got 2"):
            handle.decide(Scale.to(replace(wanted, ps=RolePlan(2, 0.25, 512))))

        handle.decide(ordered(AdjustBatches(tuple((node, 4) for node in sizes))))
        refused = until(
            lambda: (m := handle.snapshot().mitigations) and m[-1].note and m[-1], what="an answer"
        )
        assert refused.status is ProposalStatus.FAILED
        assert "never asked for their batch size" in refused.note
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED

    @pytest.mark.release
    def test_a_program_that_fails_ends_its_job_with_the_error(self, submitted):
        role = ExternalRole((*PYTHON, "raise ValueError('no such column')"))
        spec = ExternalSpec(role, 10_000, framework=Framework.TORCH)
        handle = submitted("broken", spec, n_worker=1, max_restarts_per_error=0)
        now = ended(handle)
        assert now.phase is JobPhase.FAILED
        assert "no such column" in now.message

    def test_what_this_machine_cannot_run_is_refused(self, cluster, tmp_path):
        good = JobSpec("refused", foreign=torch_job(tmp_path))
        missing = replace(good.foreign, worker=ExternalRole(("no-such-program", "x")))
        with pytest.raises(InvalidValueError, match=r"no-such-program.*install it"):
            cluster.submit(replace(good, foreign=missing))
        roles = (FixedRole("reader", ("no-such-reader",)),)
        with pytest.raises(InvalidValueError, match=r"external.reader begins with 'no-such-reader'"):
            cluster.submit(replace(good, foreign=replace(good.foreign, roles=roles)))
        with pytest.raises(InvalidValueError, match="leave model and data out"):
            cluster.submit(good, model=object())
        with pytest.raises(InvalidValueError, match=r"set plan.ps.count: 1"):
            cluster.submit(replace(good, plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(2, 0.5, 512))))
