"""Programs of others in real pods: TensorFlow's TF_CONFIG with reports, torchrun with a log of steps."""

import json
import sys
import time

import pytest
from support.kubernetes.kube import core_api, host_files
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.pod_parts import NODE_LABEL
from dlrover_nb.core.master.external.launch.pod_script import BEGINS
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods]

ENDED = {"succeeded", "failed", "stopped"}

# Reads TF_CONFIG as TensorFlow's TFConfigClusterResolver does; trains until the test has seen enough; a PS stays until it
# is ended.
TF_PROGRAM = """
import json, os, time
from dlrover_nb.report import step
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
own = config["cluster"][task["type"]][task["index"]]
assert own.rpartition(":")[0] == os.environ["POD_IP"], own
print(json.dumps(config), flush=True)
if task["type"] == "ps":
    time.sleep(1e6)
n = 0
while not os.path.exists("/dlrover-nb/state/seen"):
    n += 1
    step(samples=16, loss=1 / n)
    time.sleep(0.05)
"""

# A program as torchrun starts it, which sums over all workers in each step.
TORCH_PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for n in range(100000 if size < 3 else 100):
    total = torch.ones(8)
    dist.all_reduce(total)
    assert total.sum().item() == 8 * size
    if rank == 0:
        print(f"step {n} of {size} workers loss {1 / (n + 1):.4f}", flush=True)
    time.sleep(0.05)
dist.destroy_process_group()
"""

# Gets its rows from the master, and writes down each batch that it has trained, beside the run folder; is slow until
# the test has disturbed it.
SERVED_PROGRAM = """
import json, os, pathlib, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "ps":
    time.sleep(1e6)
from dlrover_nb import client
out, n = open(f"/dlrover-nb/state/{os.environ['DLROVER_NB_NODE']}-{time.time_ns()}.rows", "a"), 0
def waits():
    later = [name for begins, name in ((60, "restarted"), (140, "lost")) if n >= begins]
    return any(not os.path.exists(f"/dlrover-nb/state/{name}") for name in later)
for shard in client.shards(600):
    for rows in shard.batches(10):
        time.sleep(10 if waits() else 0.1)
        n += 10
        out.write("".join(f"{row}\\n" for row in rows))
        out.flush()
"""

# Reports once by Kubeflow Trainer's protocol, over HTTPS with the certificate that it is given.
TRAINER_PROGRAM = """
import json, os, ssl, urllib.request
url, certificate, token = (os.environ[f"KUBEFLOW_TRAINER_SERVER_{name}"] for name in ("URL", "CA_CERT", "TOKEN"))
assert url.startswith("https://"), url
status = {"lastUpdatedTime": "2026-01-02T03:04:05Z", "progressPercentage": 100}
head = {"Authorization": "Bearer " + open(token).read().strip(), "Content-Type": "application/json"}
data = json.dumps({"trainerStatus": status}).encode()
request = urllib.request.Request(url, data=data, headers=head, method="POST")
context = ssl.create_default_context(cafile=certificate)
with urllib.request.urlopen(request, timeout=60, context=context) as answer:
    assert answer.status == 200
"""


def plan(n_worker, worker=(0.3, 256), ps=(0.2, 256)):
    return ResourcePlan(RolePlan(n_worker, *worker), RolePlan(1, *ps))


class Pods:
    """A foreign job in pods."""

    def __init__(self, cluster, namespace, spec):
        self.core, self.namespace = core_api(cluster), namespace
        self.api = connect_api(namespace=namespace, kubeconfig=cluster.kubeconfig)
        self.handle = KubernetesCluster(self.api).submit(spec)

    @property
    def now(self):
        return self.handle.snapshot()

    def until(self, condition):
        end = time.monotonic() + LIMIT_S
        while not condition(now := self.now):
            assert str(now.phase) not in ENDED, f"{now.phase}: {now.message} {self.words()}"
            assert time.monotonic() < end, f"{now.phase}: {now.message} {now.nodes} {self.words()}"
            time.sleep(0.2)
        return now

    def until_end(self):
        now = self.handle.wait(LIMIT_S)
        assert now.phase.is_final, f"{now.phase}: {now.message} {self.words()}"
        return now

    def words(self, node=None):
        return [line.text for line in self.handle.logs(node, n_line=1000)]

    def configs(self, node=None):
        return [json.loads(text) for text in self.words(node) if text.startswith("{")]

    def n_begun(self):
        """Return how often the program of each node began, from its pod: a master that dies may read lines twice."""
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=NODE_LABEL).items
        told = {pod.metadata.labels[NODE_LABEL]: pod.metadata.name for pod in pods}
        return {
            node: self.core.read_namespaced_pod_log(pod, self.namespace).count(BEGINS)
            for node, pod in told.items()
        }

    def delete(self, selector):
        (pod,) = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        self.core.delete_namespaced_pod(pod.metadata.name, self.namespace, grace_period_seconds=0)


@pytest.fixture
def submit(nodes, namespace):
    """Submit a job with these programs to a namespace of its own."""

    def submit(foreign, first, *, shard_batches=20, **kubernetes):
        sizes = {"batch_size": 32, "shard_batches": shard_batches}
        content = {"name": "foreign", "mode": "manual", **sizes, "external": foreign}
        spec = job_from(
            {**content, "kubernetes": host_files() | {"linger_s": 60} | kubernetes, "plan": first}
        )
        return Pods(nodes, namespace(nodes), spec)

    return submit


def written(plan):
    return {
        str(role): {"count": each.count, "cpu": each.cpu, "memory_mib": each.memory_mib}
        for role, each in (("worker", plan.worker), ("ps", plan.ps))
    }


def beside_the_pods(folder):
    """Return the volumes of pods that see a folder of the test, too."""
    folder.chmod(0o777)
    for parent in list(folder.parents)[:3]:
        parent.chmod(0o755)
    return [*host_files()["volumes"], {"mount": "/dlrover-nb/state", "host_path": str(folder)}]


def is_training(wanted):
    return lambda now: (
        now.running == wanted and sum(n.last is not None for n in now.nodes) == wanted.worker.count
    )


@pytest.mark.more
def test_tensorflow_programs_find_each_other_report_and_are_scaled(submit, tmp_path):
    role = {"command": [sys.executable, "-c", TF_PROGRAM]}
    job = submit(
        {"framework": "tensorflow", "n_sample": 10_000_000, "worker": role, "ps": role},
        written(plan(2)),
        volumes=beside_the_pods(tmp_path),
    )
    now = job.until(is_training(plan(2)))
    assert now.phase is JobPhase.TRAINING
    assert now.train.n_sample_done > 0
    assert all(n.last.memory_mib > 1 for n in now.nodes if n.last)
    configs = until(lambda: len(told := job.configs()) == 3 and told, what=job.words)
    assert sorted(config["task"]["type"] for config in configs) == ["chief", "ps", "worker"]
    assert len({str(config["cluster"]) for config in configs}) == 1

    job.handle.decide(Scale.to(plan(3), why="more"))
    job.until(is_training(plan(3)))
    until(lambda: len(job.configs("worker-0")[-1]["cluster"]["worker"]) == 2, what=job.words)
    (tmp_path / "seen").touch()
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert [outcome.plan.worker.count for outcome in end.markers] == [2, 3]
    assert any("d1 is applied" in line for line in end.story)


@pytest.mark.release
def test_a_program_that_reports_as_to_kubeflow_trainer_is_heard_over_https(submit):
    worker = {"command": [sys.executable, "-c", TRAINER_PROGRAM]}
    job = submit({"framework": "torch", "n_sample": 10_000, "worker": worker}, written(plan(1)))
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, (end.message, job.words())
    assert end.reported is not None
    assert (end.reported.percentage, end.train.n_sample_done) == (100, 10_000)


@pytest.mark.release
def test_torch_programs_go_on_without_a_lost_worker_and_is_scaled(submit):
    foreign = {
        "framework": "torch",
        "n_sample": 10_000_000,
        "worker": {"command": [sys.executable, "-u", "-c", TORCH_PROGRAM]},
        "step_log": r"step (?P<step>\d+) of \d+ workers loss (?P<loss>\S+)",
        "counting": "job",
    }
    torch = {"worker": (0.7, 768), "ps": (0.4, 512)}
    first = plan(2, **torch)
    job = submit(foreign, written(first))
    now = job.until(is_training(first))
    assert now.loss is not None

    job.delete("dlrover-nb/node=worker-1")
    job.until(lambda now: is_training(first)(now) and "worker-2" in [n.id for n in now.nodes])
    job.handle.decide(Scale.to(plan(3, **torch)))
    job.until(lambda _: any("of 3 workers" in text for text in job.words("worker-0")))
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert any("worker-1 was lost" in line for line in end.story)


@pytest.mark.release
def test_a_masters_pod_that_is_lost_disturbs_no_program(submit, tmp_path):
    role = {"command": [sys.executable, "-c", TF_PROGRAM]}
    foreign = {"framework": "tensorflow", "n_sample": 10_000_000, "worker": role, "ps": role}
    job = submit(foreign, written(plan(1)), volumes=beside_the_pods(tmp_path))
    before = job.until(is_training(plan(1)))
    job.delete("dlrover-nb/role=master")
    now = job.until(lambda now: any("the master restarted" in line for line in now.story))
    now = job.until(
        lambda now: is_training(plan(1))(now) and now.train.n_sample_done > before.train.n_sample_done
    )
    assert {n.id for n in now.nodes} == {n.id for n in before.nodes}
    until(
        lambda: job.n_begun() == {node.id: 1 for node in now.nodes},
        what=lambda: f"one begin: {job.n_begun()}",
    )


@pytest.mark.release
def test_rows_are_exact_though_a_program_and_the_masters_pod_are_lost(submit, tmp_path):
    role = {"command": [sys.executable, "-c", SERVED_PROGRAM]}
    foreign = {"framework": "tensorflow", "n_sample": 600, "worker": role, "ps": role}
    job = submit(foreign, written(plan(2)), shard_batches=1, volumes=beside_the_pods(tmp_path))
    job.until(lambda now: now.train.n_sample_done > 40)
    job.delete("dlrover-nb/role=master")
    job.until(lambda now: any("the master restarted" in line for line in now.story))
    (tmp_path / "restarted").touch()
    job.until(lambda now: now.train.n_sample_done > 200)
    job.delete("dlrover-nb/node=worker-1")
    (tmp_path / "lost").touch()
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == end.train.n_sample_total == 600
    rows = [int(row) for path in tmp_path.glob("*.rows") for row in path.read_text().split()]
    assert sorted(set(rows)) == list(range(600)), "each row is trained"
    assert len(rows) <= 600 + 2 * 32, "and twice only what the ended programs had not reported of a shard"


@pytest.mark.release
def test_a_model_of_ours_is_trained_by_all_reduce_and_goes_on_without_a_lost_worker(nodes, namespace):
    first = plan(2, worker=(0.6, 768), ps=(0.3, 512))
    content = {"name": "ours", "mode": "manual", "sync": "allreduce", "epochs": 10, "batch_size": 256}
    spec = job_from({**content, "kubernetes": host_files() | {"linger_s": 60}, "plan": written(first)})
    job = Pods(nodes, namespace(nodes), spec)
    job.until(is_training(first))
    job.delete("dlrover-nb/node=worker-1")
    job.until(lambda now: is_training(first)(now) and "worker-2" in [n.id for n in now.nodes])
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == end.train.n_sample_total == 990_000
    assert end.evaluation is not None
    assert end.evaluation.auc > 0.85
