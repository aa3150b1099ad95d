"""Real pods that run nodes, and a test in the place of their master."""

import base64
import time
from dataclasses import replace

import pytest
from support.kubernetes.kube import core_api, host_files
from support.runtime.node_world import FEATURES, SPEC, World, shard
from support.waiting import LIMIT_S

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.pods import MASTER_NOTE, PodNode, node_pod, pod_name
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import ShardProgress
from dlrover_nb.core.structs.wire.messages import (
    Granted,
    Hello,
    Load,
    Loaded,
    Report,
    ShardAsked,
    ShardFinished,
    Stop,
    Train,
)
from dlrover_nb.core.structs.wire.pod_contract import PodJob
from dlrover_nb.core.usercode import pack

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.more]

LISTEN = "tcp://10.213.7.1"  # this machine, as pods see it
RUN = "0a1b2c3d"
NAMES = {Role.PS: "ps-1", Role.WORKER: "worker-1"}
KUBERNETES = job_from({"name": "test", "kubernetes": host_files()}).kubernetes


class Pods:
    """The pods of a job in a namespace of its own."""

    def __init__(self, cluster, namespace, job):
        self.core, self.namespace, self.job = core_api(cluster), namespace, job

    def tell(self):
        """Make the Secret of the job."""
        data = {"job.json": base64.b64encode(to_json(self.job)).decode()}
        self.core.create_namespaced_secret(self.namespace, {"metadata": {"name": "test-job"}, "data": data})

    def start(self, role, master, **changes):
        node = PodNode(NAMES[role], role, 0.9, 640)
        pod = node_pod(self.job, node, master=master)
        pod["spec"]["containers"][0]["env"] += [{"name": n, "value": v} for n, v in changes.items()]
        self.core.create_namespaced_pod(self.namespace, pod)

    def say_where(self, endpoint):
        for role in NAMES:
            patch = {"metadata": {"annotations": {MASTER_NOTE: endpoint}}}
            self.core.patch_namespaced_pod(self.name(role), self.namespace, patch)

    def name(self, role):
        return pod_name("test", RUN, NAMES[role])

    def end_of(self, role):
        until = time.monotonic() + LIMIT_S
        while True:
            pod = self.core.read_namespaced_pod(self.name(role), self.namespace)
            for status in pod.status.container_statuses or ():
                if status.state.terminated:
                    return status.state.terminated
            assert time.monotonic() < until, pod.status
            time.sleep(0.2)


@pytest.fixture
def pods(nodes, namespace):
    with World(spec=replace(SPEC, kubernetes=KUBERNETES), listen=LISTEN) as world:
        keys = world.keys
        job = PodJob(world.spec, FEATURES, RUN, keys.public, keys.secret, "token")
        yield Pods(nodes, namespace(nodes), job), world


def test_nodes_train_in_pods_that_may_write_nowhere_and_follow_their_master(pods):
    pods, world = pods
    pods.tell()
    for role in NAMES:
        pods.start(role, world.endpoint)
    hello = {hello.role: hello for hello in (world.receive(Hello)[0] for _ in NAMES)}
    assert all(each.cpu_enforced and each.memory_enforced for each in hello.values())
    assert hello[Role.PS].endpoint.startswith("tcp://10.213.8.")
    world.send("ps-1", Load(1, 0, 1, even_bucket_owner(1), ()))
    assert world.receive(Loaded)[0].error == ""
    train = Train(1, (hello[Role.PS].endpoint,), even_bucket_owner(1))
    world.send("worker-1", train)
    world.receive(ShardAsked)
    world.send("worker-1", Granted(shard(0)))
    assert world.receive(ShardFinished)[0].lease == shard(0).lease
    assert 0 < world.receive(Report)[0].sample.memory_mib < 640

    world.move_master()
    world.router_before.close(linger=0)
    pods.say_where(world.endpoint)
    again = {each.role: each for each in (world.receive(Hello)[0] for _ in NAMES)}
    done = ShardProgress(shard(0).lease, shard(0).end)
    assert again[Role.WORKER] == replace(hello[Role.WORKER], released=(done,))
    assert again[Role.PS] == replace(hello[Role.PS], ps_epoch=1)
    world.send("worker-1", train)
    world.train("worker-1", [shard(1)])
    for name in NAMES.values():
        world.send(name, Stop())
    assert {pods.end_of(role).exit_code for role in NAMES} == {0}


@pytest.mark.release
def test_a_pod_tells_why_its_node_failed(pods):
    pods, world = pods
    own = replace(SPEC.model, name="custom", code=pack(lambda: None).code)
    pods.job = replace(pods.job, spec=replace(world.spec, model=own), code_url="memory://nowhere")
    pods.tell()
    pods.start(Role.PS, world.endpoint)
    ended = pods.end_of(Role.PS)
    assert ended.exit_code == 1
    assert ended.message.startswith("cannot read the job's code at memory://nowhere/code-")
    assert "\n" not in ended.message
