from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import psutil
import pytest
from support.runtime.node_world import FEATURES, SPEC, Gate, World, shard, with_heartbeat
from support.runtime.single_process import train_single
from support.waiting import LIMIT_S

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.node.node import main
from dlrover_nb.core.structs.job.job import DataSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import (
    Forget,
    Granted,
    Hello,
    Left,
    NodeFailed,
    Pause,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
    Stop,
)

SHARDS = [shard(n) for n in (4, 0, 2)]
MODULE = "dlrover_nb.core.runtime.node"


class Processes(ExitStack):
    """Node processes of one world; they end with the test."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def start(self, node, role, **changes):
        config = replace(self.world.config(node, role), **changes)
        path = self.world.folder / f"{node}.json"
        path.write_bytes(to_json(config))
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(path)], stderr=subprocess.PIPE, text=True
        )
        self.enter_context(process)
        self.callback(process.kill)
        return process


def test_a_ps_imports_neither_torch_nor_readers_nor_file_systems():
    code = f"import sys, {MODULE}, dlrover_nb.core.runtime.ps.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"torch", "pandas", "pyarrow", "fsspec", "asyncio"} & set(done.stdout.split())


TRAIN = """
import sys
import torch
import dlrover_nb.core.runtime.node.node
import dlrover_nb.core.runtime.worker.worker
from dlrover_nb.core.models.inputs import gathered
rows = torch.ones(3, 2, requires_grad=True)
gathered(rows, torch.tensor([[0, 1], [1, 2]])).sum().backward()
assert rows.grad.sum() == 8
print(*sys.modules)
"""


def test_a_worker_makes_its_first_step_without_what_others_import():
    done = subprocess.run([sys.executable, "-c", TRAIN], check=True, capture_output=True, text=True)
    assert not {"scipy", "pandas", "sqlalchemy", "ray", "yaml", "psycopg"} & set(done.stdout.split())


@pytest.mark.more
def test_node_processes_train_and_end_when_told():
    with World() as world, Processes(world) as processes:
        ps, worker = processes.start("ps0", Role.PS, cpu=0.5), processes.start("w0", Role.WORKER)
        hello = world.receive(Hello, "ps0")[0]
        assert hello.pid == ps.pid
        # A PS is small: no torch, no pandas, no pyarrow.
        assert not [
            m.path for m in psutil.Process(ps.pid).memory_maps() if "torch" in m.path or "pandas" in m.path
        ]
        train = world.load(["ps0"], (hello.endpoint,))
        assert world.receive(Hello, "w0")[0].role is Role.WORKER
        world.send("w0", train)
        world.train("w0", [shard(0)])
        world.send("w0", Stop())
        assert worker.wait(LIMIT_S) == 0
        world.send("ps0", Stop())
        assert ps.wait(LIMIT_S) == 0
        left = {path.name for path in world.folder.iterdir()}
        assert left == {"m", "nodes", "ps0.json", "w0.json"}  # sockets are gone


@pytest.mark.more
def test_a_mistake_in_the_data_is_told_once_and_not_to_be_tried_again(tmp_path):
    missing = DataSpec(DataFormat.PARQUET, str(tmp_path / "no.parquet"))
    with World() as world, Processes(world) as processes:
        worker = processes.start("w0", Role.WORKER, spec=replace(SPEC, data=missing))
        failed = world.receive(NodeFailed)[0]
        assert failed.node == "w0"
        assert not failed.retryable
        assert "no.parquet" in failed.why
        assert worker.wait(LIMIT_S) == 1


@pytest.mark.release
def test_orphans_end_by_themselves():
    with World(spec=with_heartbeat(5.0)) as world, Processes(world) as processes:
        ps = processes.start("ps0", Role.PS)
        world.receive(Hello)
        world.router.close(linger=0)
        assert ps.wait(LIMIT_S) == 1
        assert "no connection to its master" in ps.stderr.read()


@pytest.mark.more
def test_a_worker_that_gets_sigterm_without_a_shard_ends_at_once():
    with World() as world, Processes(world) as processes:
        worker = processes.start("w0", Role.WORKER)
        world.receive(Hello, "w0")
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        worker.terminate()
        assert worker.wait(LIMIT_S) == 0
        assert world.receive(Left)[0].node == "w0"


@pytest.mark.more
def test_a_worker_that_gets_sigterm_amid_a_shard_finishes_it_first():
    with World() as world, Processes(world) as processes:
        worker = processes.start("w0", Role.WORKER)
        world.receive(Hello, "w0")
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(shard(0, n_batch=300)))
        while not has_trained(world, "w0"):
            world.receive(Report)
        worker.terminate()
        assert world.receive(ShardFinished)[0].lease == shard(0).lease
        assert world.receive(Left)[0].node == "w0"
        assert worker.wait(LIMIT_S) == 0


@pytest.mark.more
def test_a_ps_that_gets_sigterm_serves_on_says_so_and_ends_by_an_order():
    with World() as world, Processes(world) as processes:
        ps, worker = processes.start("ps0", Role.PS, cpu=0.5), processes.start("w0", Role.WORKER)
        train = world.load(["ps0"], (world.receive(Hello, "ps0")[0].endpoint,))
        world.receive(Hello, "w0")
        world.send("w0", train)
        world.receive(ShardAsked, "w0")
        ps.send_signal(signal.SIGTERM)
        while not world.receive(Report)[0].is_leaving:
            pass
        world.send("w0", Granted(shard(0)))
        assert world.receive(ShardFinished, "w0")[0].lease == shard(0).lease
        world.replace_master()
        world.receive(Hello, "ps0")
        world.receive(Hello, "w0")
        while not world.receive(Report)[0].is_leaving:  # it tells each of its masters
            pass
        for name, process in {"ps0": ps, "w0": worker}.items():
            world.send(name, Stop())
            assert process.wait(LIMIT_S) == 0


@pytest.mark.more
def test_a_batch_under_way_to_a_ps_that_stands_still_during_a_pause_is_trained_once():
    single, gate = train_single(SPEC, FEATURES, shards=SHARDS), Gate(at=13)
    with World() as world, Processes(world) as processes:
        ps = processes.start("ps0", Role.PS)
        train = world.load(["ps0"], (world.receive(Hello, "ps0")[0].endpoint,))
        world.start("w0", Role.WORKER, gate)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        world.receive(ShardFinished)
        world.send("w0", Granted(SHARDS[1]))
        gate.reached()
        ps.send_signal(signal.SIGSTOP)
        gate.open()
        world.send("w0", Pause(world.epoch))
        time.sleep(4.0)  # longer than a worker waited once
        ps.send_signal(signal.SIGCONT)
        paused = world.receive(Paused)[0]
        assert paused.n_row_done == (len(gate.losses) - 10) * 64
        world.send("w0", world.load(["ps0"], train.endpoints, world.save(["ps0"])))
        assert world.receive(ShardFinished)[0].lease == SHARDS[1].lease
        world.train("w0", SHARDS[2:])
    np.testing.assert_allclose(gate.losses, single.losses, rtol=1e-6)


def test_a_second_sigterm_ends_a_ps_without_a_word_of_its_master():
    with World() as world, Processes(world) as processes:
        ps = processes.start("ps0", Role.PS, cpu=0.5)
        world.receive(Hello, "ps0")
        ps.send_signal(signal.SIGTERM)
        while not world.receive(Report)[0].is_leaving:
            pass
        ps.send_signal(signal.SIGTERM)
        assert ps.wait(LIMIT_S) == 0


@pytest.mark.release
def test_a_worker_in_step_goes_on_when_another_is_killed():
    with World(spec=replace(SPEC, sync=Sync.BSP)) as world, Processes(world) as processes:
        victim = processes.start("w0", Role.WORKER)
        processes.start("w1", Role.WORKER)
        train = world.start_ps(2)
        for name in ("w0", "w1"):
            world.receive(Hello, name)
            world.send(name, train)
            world.receive(ShardAsked, name)
        for i, name in enumerate(("w0", "w1")):  # both are there: none trains alone, and is done before
            world.send(name, Granted(shard(i, n_batch=300)))
        while not all(has_trained(world, name) for name in ("w0", "w1")):
            world.receive(Report)
        victim.kill()
        world.send("ps0", Forget("w0"))  # as the master does when a heartbeat is missing
        assert world.receive(ShardFinished, "w1")[0].lease == shard(1).lease
        world.send("w1", Stop())


def has_trained(world, name):
    return any(r.sample.n_sample for r in world.reports if r.sample.node == name)


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_the_command_wants_one_configuration(arguments):
    assert main(arguments) == 2


def test_a_configuration_that_is_none_is_a_clear_error(tmp_path, caplog):
    (tmp_path / "c.json").write_text('{"node": 3}')
    assert main([str(tmp_path / "c.json")]) == 1
    assert "NodeConfig" in caplog.text
